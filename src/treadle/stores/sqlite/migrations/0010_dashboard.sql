-- Sign-ins of browsers. A cookie is stored only as its digest.
CREATE TABLE sign_ins (
    sign_in_id TEXT NOT NULL PRIMARY KEY,
    digest     BLOB NOT NULL UNIQUE,
    token_id   TEXT,                           -- null: the owner of the home
    created_at REAL NOT NULL,
    used_at    REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- One-time codes of sign-in links, as their digests.
CREATE TABLE sign_in_codes (
    digest     BLOB NOT NULL PRIMARY KEY,
    expires_at REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- What lists of runs show and filter, derived from the events of each run.
CREATE TABLE run_summaries (
    run         INTEGER PRIMARY KEY REFERENCES runs (id),
    message     TEXT NOT NULL DEFAULT '',      -- the beginning of the message that it answers
    cost        REAL,                          -- null until it has ended
    tokens      INTEGER,
    steps       INTEGER,
    duration_ms INTEGER
) STRICT;

INSERT INTO run_summaries (run, message, cost, tokens, steps, duration_ms)
SELECT runs.id, coalesce(
           (SELECT substr(json_extract(CAST(data AS TEXT), '$.message.parts[0].text'), 1, 200) FROM events
            WHERE run = runs.id AND sequence <= 8 AND type = 'user_message' AND json_valid(CAST(data AS TEXT)) LIMIT 1), ''),
       coalesce(json_extract(ended.json, '$.metrics.cost'), 0.0) + 0.0,
       coalesce(json_extract(ended.json, '$.metrics.input_tokens'), 0)
           + coalesce(json_extract(ended.json, '$.metrics.output_tokens'), 0),
       coalesce(json_extract(ended.json, '$.metrics.steps'), 0),
       coalesce(json_extract(ended.json, '$.metrics.duration_ms'), 0)
FROM runs LEFT JOIN (SELECT run, CAST(data AS TEXT) AS json FROM events
                     WHERE type = 'run_end' AND json_valid(CAST(data AS TEXT))) AS ended ON ended.run = runs.id;

UPDATE run_summaries SET cost = NULL, tokens = NULL, steps = NULL, duration_ms = NULL
WHERE run IN (SELECT id FROM runs WHERE outcome IS NULL);
