-- name: insert_token
INSERT INTO tokens (token_id, name, digest, scopes, agents, quotas, created_at, expires_at, owner, visibility)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: token_by_digest
SELECT token_id, name, scopes, agents, created_at, expires_at, revoked_at, quotas, owner, visibility
FROM tokens WHERE digest = ?;

-- name: tokens
SELECT token_id, name, scopes, agents, created_at, expires_at, revoked_at, quotas, owner, visibility
FROM tokens ORDER BY created_at;

-- name: revoke_token
UPDATE tokens SET revoked_at = ? WHERE token_id = ? AND revoked_at IS NULL RETURNING token_id;

-- name: request
SELECT digest, status, body FROM requests WHERE token_id = ? AND route = ? AND key = ?;

-- name: insert_request
INSERT INTO requests (token_id, route, key, digest, at) VALUES (?, ?, ?, ?, ?);

-- name: answer_request
UPDATE requests SET status = ?, body = ? WHERE token_id = ? AND route = ? AND key = ?;

-- name: delete_old_requests
DELETE FROM requests WHERE at < ? RETURNING key;
