-- name: add_token
INSERT INTO tokens (token_id, name, digest, scopes, agents, quotas, created_at, expires_at, owner, visibility,
                    multi_user)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (token_id) DO NOTHING;

-- name: token_by_digest
SELECT token_id, name, scopes, agents, created_at, expires_at, revoked_at, quotas, owner, visibility, multi_user,
       last_used_at
FROM tokens WHERE digest = $1;

-- name: token_digest
SELECT digest FROM tokens WHERE token_id = $1;

-- name: tokens
SELECT token_id, name, scopes, agents, created_at, expires_at, revoked_at, quotas, owner, visibility, multi_user,
       last_used_at
FROM tokens ORDER BY created_at, token_id;

-- name: revoke_token
UPDATE tokens SET revoked_at = $2 WHERE token_id = $1 AND (revoked_at IS NULL OR revoked_at = $2) RETURNING token_id;

-- name: touch_token
UPDATE tokens SET last_used_at = $2 WHERE token_id = $1 AND (last_used_at IS NULL OR last_used_at < $2);

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

-- name: add_sign_in
INSERT INTO sign_ins (sign_in_id, digest, token_id, created_at, used_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (sign_in_id) DO NOTHING;

-- name: sign_in_by_digest
SELECT sign_in_id, sign_ins.token_id, sign_ins.created_at, used_at,
       tokens.token_id, name, scopes, agents, tokens.created_at, expires_at, revoked_at, quotas, owner, visibility, multi_user,
       last_used_at
FROM sign_ins LEFT JOIN tokens ON tokens.token_id = sign_ins.token_id WHERE sign_ins.digest = $1;

-- name: use_sign_in
UPDATE sign_ins SET used_at = $2 WHERE sign_in_id = $1;

-- name: delete_sign_in
DELETE FROM sign_ins WHERE sign_in_id = $1;

-- name: delete_sign_ins_of
DELETE FROM sign_ins WHERE token_id IS NOT DISTINCT FROM $1 RETURNING sign_in_id;

-- name: delete_old_sign_ins
DELETE FROM sign_ins WHERE used_at < $1 OR created_at < $2;

-- name: add_sign_in_code
INSERT INTO sign_in_codes (digest, expires_at) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: take_sign_in_code
DELETE FROM sign_in_codes WHERE digest = $1 AND expires_at > $2 RETURNING digest;

-- name: delete_old_sign_in_codes
DELETE FROM sign_in_codes WHERE expires_at <= $1;
