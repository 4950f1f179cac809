-- name: keep_schedule
INSERT INTO schedules (schedule_id, agent, message, every, zone, anchor, next_at, session_id, is_heartbeat, paused,
                       owner, deliver)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET
    agent = excluded.agent, message = excluded.message, every = excluded.every, zone = excluded.zone,
    anchor = excluded.anchor, next_at = excluded.next_at, session_id = excluded.session_id,
    paused = excluded.paused, deliver = excluded.deliver;

-- name: schedules
SELECT schedule_id, agent, message, every, zone, anchor, next_at, session_id, is_heartbeat, paused,
       firing_at, firing_since, fired_at, run_id, problem, owner, deliver
FROM schedules ORDER BY rowid;

-- name: remove_schedule
DELETE FROM schedules WHERE schedule_id = ? RETURNING 1;

-- name: begin_tick
UPDATE schedules SET firing_at = ?, firing_since = ?, next_at = ?
WHERE schedule_id = ? AND next_at = ? AND firing_at IS NULL AND NOT paused RETURNING 1;

-- name: finish_tick
UPDATE schedules SET firing_at = NULL, firing_since = NULL, fired_at = ?1, run_id = coalesce(?2, run_id), problem = ?3
WHERE schedule_id = ?4 AND firing_at = ?1;

-- name: insert_hook
INSERT INTO hooks (hook_id, name, agent, message, session, created_at, owner, scheme)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: hook
SELECT hook_id, name, agent, message, session, created_at, owner, scheme FROM hooks WHERE hook_id = ?;

-- name: hooks
SELECT hook_id, name, agent, message, session, created_at, owner, scheme FROM hooks ORDER BY rowid;

-- name: remove_hook
DELETE FROM hooks WHERE hook_id = ? RETURNING 1;

-- name: insert_webhook
INSERT INTO webhooks (webhook_id, url, events, agents, created_at, position, most_attempts, attempts, problem, disabled)
VALUES (?, ?, ?, ?, ?, ?, ?, 0, '', 0);

-- name: webhooks
SELECT webhook_id, url, events, agents, created_at, position, most_attempts, attempts, first_failed_at, retry_at,
       delivered_at, problem, disabled
FROM webhooks ORDER BY rowid;

-- name: remove_webhook
DELETE FROM webhooks WHERE webhook_id = ? RETURNING 1;

-- name: move_webhook
UPDATE webhooks SET position = ?, attempts = ?, first_failed_at = ?, retry_at = ?, delivered_at = ?, problem = ?,
       disabled = ?
WHERE webhook_id = ? RETURNING 1;

-- name: enable_webhook
UPDATE webhooks SET disabled = 0, retry_at = NULL WHERE webhook_id = ?;

-- name: insert_dead_letter
INSERT OR REPLACE INTO dead_letters (webhook_id, event_id, run_id, sequence, type, attempts, reason, died_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: dead_letters
SELECT webhook_id, event_id, run_id, sequence, type, attempts, reason, died_at, queued
FROM dead_letters WHERE webhook_id = ? ORDER BY died_at, run_id, sequence;

-- name: count_dead_letters
SELECT webhook_id, count(*) FROM dead_letters GROUP BY webhook_id;

-- name: queue_dead_letters
UPDATE dead_letters SET queued = 1 WHERE webhook_id = ?1 AND (?2 IS NULL OR event_id = ?2) RETURNING 1;

-- name: bury_dead_letter
DELETE FROM dead_letters WHERE webhook_id = ? AND event_id = ?;

-- name: kill_dead_letter
UPDATE dead_letters SET queued = 0, attempts = attempts + 1, reason = ? WHERE webhook_id = ? AND event_id = ?;

-- name: remove_dead_letters
DELETE FROM dead_letters WHERE webhook_id = ?;

-- name: delete_dead_letters
DELETE FROM dead_letters WHERE run_id IN (SELECT run_id FROM runs WHERE session_id = ?);
