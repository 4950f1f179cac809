-- name: insert_token
INSERT INTO tokens (token_id, name, digest, scopes, agents, quotas, created_at, expires_at, owner, visibility,
                    multi_user)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: token_by_digest
SELECT token_id, name, scopes, agents, created_at, expires_at, revoked_at, quotas, owner, visibility, multi_user,
       last_used_at
FROM tokens WHERE digest = ?;

-- name: token_digest
SELECT digest FROM tokens WHERE token_id = ?;

-- name: tokens
SELECT token_id, name, scopes, agents, created_at, expires_at, revoked_at, quotas, owner, visibility, multi_user,
       last_used_at
FROM tokens ORDER BY created_at;

-- name: revoke_token
UPDATE tokens SET revoked_at = ? WHERE token_id = ? AND revoked_at IS NULL RETURNING token_id;

-- name: touch_token
UPDATE tokens SET last_used_at = ?2 WHERE token_id = ?1 AND (last_used_at IS NULL OR last_used_at < ?2);

-- name: request
SELECT digest, status, body FROM requests WHERE token_id = ? AND route = ? AND key = ?;

-- name: insert_request
INSERT INTO requests (token_id, route, key, digest, at) VALUES (?, ?, ?, ?, ?);

-- name: answer_request
UPDATE requests SET status = ?, body = ? WHERE token_id = ? AND route = ? AND key = ?;

-- name: delete_old_requests
DELETE FROM requests WHERE at < ? RETURNING key;

-- name: insert_sign_in
INSERT INTO sign_ins (sign_in_id, digest, token_id, created_at, used_at) VALUES (?, ?, ?, ?, ?);

-- name: sign_in_by_digest
SELECT sign_in_id, sign_ins.token_id, sign_ins.created_at, used_at,
       tokens.token_id, name, scopes, agents, tokens.created_at, expires_at, revoked_at, quotas, owner, visibility, multi_user,
       last_used_at
FROM sign_ins LEFT JOIN tokens ON tokens.token_id = sign_ins.token_id WHERE sign_ins.digest = ?;

-- name: use_sign_in
UPDATE sign_ins SET used_at = ? WHERE sign_in_id = ?;

-- name: delete_sign_in
DELETE FROM sign_ins WHERE sign_in_id = ?;

-- name: delete_sign_ins_of
DELETE FROM sign_ins WHERE token_id IS ? RETURNING sign_in_id;

-- name: delete_old_sign_ins
DELETE FROM sign_ins WHERE used_at < ?1 OR created_at < ?2;

-- name: insert_sign_in_code
INSERT INTO sign_in_codes (digest, expires_at) VALUES (?, ?);

-- name: take_sign_in_code
DELETE FROM sign_in_codes WHERE digest = ?1 AND expires_at > ?2 RETURNING digest;

-- name: delete_old_sign_in_codes
DELETE FROM sign_in_codes WHERE expires_at <= ?;
