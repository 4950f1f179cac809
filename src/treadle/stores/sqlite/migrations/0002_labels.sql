-- The labels of runs: tags have no key. The owner is that of the run, so that a user's runs are found without reading
-- those of others.
CREATE TABLE run_labels (
    key   TEXT    NOT NULL,                    -- empty: a tag
    value TEXT    NOT NULL,
    run   INTEGER NOT NULL REFERENCES runs (id),
    owner TEXT    NOT NULL,
    PRIMARY KEY (key, value, run)
) STRICT, WITHOUT ROWID;

CREATE INDEX labels_of_owner ON run_labels (owner, key, value, run);
CREATE INDEX labels_of_run   ON run_labels (run);

ALTER TABLE run_summaries ADD COLUMN labels TEXT NOT NULL DEFAULT '';  -- JSON; empty: none

-- Usage is also counted by the owner and the tags of a run.
ALTER TABLE usage RENAME TO usage_before;

CREATE TABLE usage (
    day                INTEGER NOT NULL,       -- days since 1970, UTC
    agent              TEXT    NOT NULL,
    token              TEXT    NOT NULL,       -- empty: none
    model              TEXT    NOT NULL,       -- provider/model; empty: none was resolved
    owner              TEXT    NOT NULL,       -- empty: from before it was counted
    tags               TEXT    NOT NULL,       -- a sorted JSON list
    runs               INTEGER NOT NULL,
    model_calls        INTEGER NOT NULL,
    input_tokens       INTEGER NOT NULL,
    output_tokens      INTEGER NOT NULL,
    cache_read_tokens  INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    tool_calls         INTEGER NOT NULL,
    cost               REAL    NOT NULL,
    credits            REAL    NOT NULL,
    unpriced_calls     INTEGER NOT NULL,
    PRIMARY KEY (day, agent, token, model, owner, tags)
) STRICT, WITHOUT ROWID;

INSERT INTO usage
SELECT day, agent, token, model, '', '[]', runs, model_calls, input_tokens, output_tokens, cache_read_tokens,
       cache_write_tokens, tool_calls, cost, credits, unpriced_calls
FROM usage_before;

DROP TABLE usage_before;
