-- The labels of runs: tags have no key. The owner is that of the run, so that a user's runs are found without reading
-- those of others.
CREATE TABLE run_labels (
    key   TEXT   NOT NULL,                          -- empty: a tag
    value TEXT   NOT NULL,
    run   BIGINT NOT NULL REFERENCES runs (id),
    owner TEXT   NOT NULL,
    PRIMARY KEY (key, value, run)
);

CREATE INDEX labels_of_owner ON run_labels (owner, key, value, run);
CREATE INDEX labels_of_run   ON run_labels (run);

ALTER TABLE run_summaries ADD COLUMN labels TEXT NOT NULL DEFAULT '';  -- JSON; empty: none

-- Usage is also counted by the owner and the tags of a run. The owner is empty before it was counted.
ALTER TABLE usage
    DROP CONSTRAINT usage_pkey,
    ADD COLUMN owner TEXT NOT NULL DEFAULT '',
    ADD COLUMN tags  TEXT NOT NULL DEFAULT '[]',    -- a sorted JSON list
    ADD PRIMARY KEY (day, agent, token, model, owner, tags);
