-- The index of searches, for every three characters of what was said: see `stores/search_parts`. It is filled later than
-- the journal, up to a position.
CREATE TABLE said_parts (
    position BIGINT    NOT NULL PRIMARY KEY REFERENCES events (position) ON DELETE CASCADE,
    parts    INTEGER[] NOT NULL
);

CREATE INDEX said_by_part ON said_parts USING gin (parts);

CREATE TABLE said_index (position BIGINT NOT NULL);

INSERT INTO said_index VALUES (0);

CREATE INDEX events_said ON events (position) WHERE type IN ('user_message', 'message_steered', 'run_forked', 'run_end');

-- Lists of runs by one of their facts, in the order of the runs. Only ended runs are in the first two: the status of a
-- run changes several times before that.
CREATE INDEX ended_runs_of_status ON runs (status, id)  WHERE outcome IS NOT NULL;
CREATE INDEX runs_of_outcome      ON runs (outcome, id) WHERE outcome IS NOT NULL;
CREATE INDEX runs_by_time         ON runs (created_at, id);
CREATE INDEX summaries_by_cost    ON run_summaries (cost) WHERE cost IS NOT NULL;
