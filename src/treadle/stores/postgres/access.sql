-- name: add_token
INSERT INTO tokens (token_id, name, digest, scopes, agents, quotas, created_at, expires_at, owner, visibility)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (token_id) DO NOTHING;

-- name: token_by_digest
SELECT token_id, name, scopes, agents, created_at, expires_at, revoked_at, quotas, owner, visibility
FROM tokens WHERE digest = $1;

-- name: tokens
SELECT token_id, name, scopes, agents, created_at, expires_at, revoked_at, quotas, owner, visibility FROM tokens
ORDER BY created_at, token_id;

-- name: revoke_token
UPDATE tokens SET revoked_at = $2 WHERE token_id = $1 AND (revoked_at IS NULL OR revoked_at = $2) RETURNING token_id;

-- name: begin_request
WITH made AS (
    INSERT INTO requests (token_id, route, key, digest, at) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT DO NOTHING RETURNING digest, status, body
)
SELECT digest, status, body FROM made
UNION ALL
SELECT digest, status, body FROM requests WHERE token_id = $1 AND route = $2 AND key = $3 LIMIT 1;

-- name: answer_request
UPDATE requests SET status = $4, body = $5 WHERE token_id = $1 AND route = $2 AND key = $3;

-- name: forget_requests
DELETE FROM requests WHERE at < $1 RETURNING key;
