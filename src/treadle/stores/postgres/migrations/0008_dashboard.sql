-- Sign-ins of browsers. A cookie is stored only as its digest.
CREATE TABLE sign_ins (
    sign_in_id TEXT             NOT NULL PRIMARY KEY,
    digest     BYTEA            NOT NULL UNIQUE,
    token_id   TEXT,                                -- null: the owner of the home
    created_at DOUBLE PRECISION NOT NULL,
    used_at    DOUBLE PRECISION NOT NULL
);

-- One-time codes of sign-in links, as their digests.
CREATE TABLE sign_in_codes (
    digest     BYTEA            NOT NULL PRIMARY KEY,
    expires_at DOUBLE PRECISION NOT NULL
);

-- What lists of runs show and filter, derived from the events of each run.
CREATE TABLE run_summaries (
    run         BIGINT NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE ON UPDATE CASCADE,
    message     TEXT   NOT NULL DEFAULT '',         -- the beginning of the message that it answers
    cost        DOUBLE PRECISION,                   -- null until it has ended
    tokens      BIGINT,
    steps       INTEGER,
    duration_ms BIGINT
);

-- The message is cut out of the JSON text: it may contain what PostgreSQL cannot store unescaped.
INSERT INTO run_summaries (run, message, cost, tokens, steps, duration_ms)
SELECT r.id, coalesce((SELECT left(substring(convert_from(e.data, 'UTF8') FROM '"text":"((?:[^"\\]|\\[^u])*)'), 200)
                       FROM events AS e WHERE e.run = r.id AND e.sequence <= 8 AND e.type = 'user_message' LIMIT 1), ''),
       CASE WHEN r.outcome IS NOT NULL THEN coalesce((ended.metrics->>'cost')::FLOAT8, 0) END,
       CASE WHEN r.outcome IS NOT NULL THEN coalesce((ended.metrics->>'input_tokens')::BIGINT, 0)
                                            + coalesce((ended.metrics->>'output_tokens')::BIGINT, 0) END,
       CASE WHEN r.outcome IS NOT NULL THEN coalesce((ended.metrics->>'steps')::INTEGER, 0) END,
       CASE WHEN r.outcome IS NOT NULL THEN coalesce((ended.metrics->>'duration_ms')::BIGINT, 0) END
FROM runs AS r LEFT JOIN (SELECT run, convert_from(data, 'UTF8')::JSON->'metrics' AS metrics FROM events
                          WHERE type = 'run_end') AS ended ON ended.run = r.id;
