-- name: append_agent_version
WITH added AS (
    INSERT INTO agent_versions (agent, number, text, at, author, origin, restored)
    SELECT $1, $2, $3, $4, $5, $6, $7
    WHERE $2 = (SELECT coalesce(max(number), 0) + 1 FROM agent_versions WHERE agent = $1)
    ON CONFLICT DO NOTHING RETURNING 1
)
SELECT pg_notify('treadle', '{"by":"","runs":[],"definitions":true}') FROM added;

-- name: agent_version
SELECT agent, number, text, at, author, origin, restored FROM agent_versions WHERE agent = $1 AND number = $2;

-- name: latest_agent_version
SELECT agent, number, text, at, author, origin, restored FROM agent_versions WHERE agent = $1
ORDER BY number DESC LIMIT 1;

-- name: latest_agent_versions
SELECT DISTINCT ON (agent) agent, number, text, at, author, origin, restored FROM agent_versions
ORDER BY agent, number DESC;

-- name: agent_versions
SELECT agent, number, text, at, author, origin, restored FROM agent_versions WHERE agent = $1 AND number < $2
ORDER BY number DESC LIMIT $3;

-- name: agent_labels
SELECT agent, label, number, at, author FROM agent_labels WHERE agent = $1 ORDER BY label;

-- name: set_agent_label
INSERT INTO agent_labels (agent, label, number, at, author) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (agent, label) DO UPDATE SET number = excluded.number, at = excluded.at, author = excluded.author;

-- name: remove_agent_label
DELETE FROM agent_labels WHERE agent = $1 AND label = $2 RETURNING 1;

-- name: shared_skills
SELECT name, sha256, files, at, author FROM shared_skills ORDER BY name;

-- name: put_shared_skill
WITH stored AS (
    INSERT INTO shared_skills (name, sha256, files, at, author) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (name) DO UPDATE
    SET sha256 = excluded.sha256, files = excluded.files, at = excluded.at, author = excluded.author
    RETURNING 1
)
SELECT pg_notify('treadle', '{"by":"","runs":[],"definitions":true}') FROM stored;
