-- name: append_agent_version
INSERT INTO agent_versions (agent, number, text, at, author, origin, restored)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7
WHERE ?2 = (SELECT coalesce(max(number), 0) + 1 FROM agent_versions WHERE agent = ?1)
RETURNING 1;

-- name: agent_version
SELECT agent, number, text, at, author, origin, restored FROM agent_versions WHERE agent = ? AND number = ?;

-- name: latest_agent_version
SELECT agent, number, text, at, author, origin, restored FROM agent_versions WHERE agent = ?
ORDER BY number DESC LIMIT 1;

-- name: latest_agent_versions
SELECT agent, number, text, at, author, origin, restored FROM agent_versions AS each
WHERE number = (SELECT max(number) FROM agent_versions AS other WHERE other.agent = each.agent) ORDER BY agent;

-- name: agent_versions
SELECT agent, number, text, at, author, origin, restored FROM agent_versions WHERE agent = ? AND number < ?
ORDER BY number DESC LIMIT ?;

-- name: agent_labels
SELECT agent, label, number, at, author FROM agent_labels WHERE agent = ? ORDER BY label;

-- name: set_agent_label
INSERT INTO agent_labels (agent, label, number, at, author) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET number = excluded.number, at = excluded.at, author = excluded.author;

-- name: remove_agent_label
DELETE FROM agent_labels WHERE agent = ? AND label = ? RETURNING 1;

-- name: shared_skills
SELECT name, sha256, files, at, author FROM shared_skills ORDER BY name;

-- name: put_shared_skill
INSERT INTO shared_skills (name, sha256, files, at, author) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET sha256 = excluded.sha256, files = excluded.files, at = excluded.at, author = excluded.author;
