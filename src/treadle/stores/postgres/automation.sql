-- name: keep_schedule
INSERT INTO schedules (schedule_id, agent, message, every, zone, anchor, next_at, session_id, is_heartbeat, paused,
                       owner, deliver)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
ON CONFLICT (schedule_id) DO UPDATE SET
    agent = excluded.agent, message = excluded.message, every = excluded.every, zone = excluded.zone,
    anchor = excluded.anchor, next_at = excluded.next_at, session_id = excluded.session_id,
    paused = excluded.paused, deliver = excluded.deliver;

-- name: schedules
SELECT schedule_id, agent, message, every, zone, anchor, next_at, session_id, is_heartbeat, paused,
       firing_at, firing_since, fired_at, run_id, problem, owner, deliver
FROM schedules ORDER BY number;

-- name: remove_schedule
DELETE FROM schedules WHERE schedule_id = $1 RETURNING 1;

-- name: begin_tick
UPDATE schedules SET firing_at = $3, firing_since = $4, next_at = $5
WHERE schedule_id = $1 AND next_at = $2 AND firing_at IS NULL AND NOT paused RETURNING 1;

-- name: finish_tick
UPDATE schedules SET firing_at = NULL, firing_since = NULL, fired_at = $2, run_id = coalesce($3, run_id), problem = $4
WHERE schedule_id = $1 AND firing_at = $2;

-- name: add_hook
INSERT INTO hooks (hook_id, name, agent, message, session, created_at, owner, scheme)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (hook_id) DO NOTHING;

-- name: hooks
SELECT hook_id, name, agent, message, session, created_at, owner, scheme FROM hooks WHERE $1::TEXT IS NULL OR hook_id = $1
ORDER BY number;

-- name: remove_hook
DELETE FROM hooks WHERE hook_id = $1 RETURNING 1;

-- name: add_webhook
INSERT INTO webhooks (webhook_id, url, events, agents, created_at, position, most_attempts, attempts, problem, disabled)
VALUES ($1, $2, $3, $4, $5, $6, $7, 0, '', FALSE) ON CONFLICT (webhook_id) DO NOTHING;

-- name: webhooks
SELECT webhook_id, url, events, agents, created_at, position, most_attempts, attempts, first_failed_at, retry_at,
       delivered_at, problem, disabled
FROM webhooks ORDER BY number;

-- name: remove_webhook
WITH letters AS (DELETE FROM dead_letters WHERE webhook_id = $1)
DELETE FROM webhooks WHERE webhook_id = $1 RETURNING 1;

-- name: move_webhook
UPDATE webhooks SET position = $2, attempts = $3, first_failed_at = $4, retry_at = $5, delivered_at = $6, problem = $7,
       disabled = $8
WHERE webhook_id = $1;

-- name: move_webhook_past
WITH moved AS (
    UPDATE webhooks SET position = $2, attempts = $3, first_failed_at = $4, retry_at = $5, delivered_at = $6,
           problem = $7, disabled = $8
    WHERE webhook_id = $1 RETURNING webhook_id
)
INSERT INTO dead_letters (webhook_id, event_id, run_id, sequence, type, attempts, reason, died_at)
SELECT webhook_id, $9, $10, $11::INTEGER, $12, $13::INTEGER, $14, $15::FLOAT8 FROM moved
ON CONFLICT (webhook_id, event_id) DO UPDATE SET
    attempts = excluded.attempts, reason = excluded.reason, died_at = excluded.died_at, queued = FALSE;

-- name: dead_letters
SELECT webhook_id, event_id, run_id, sequence, type, attempts, reason, died_at, queued
FROM dead_letters WHERE webhook_id = $1 ORDER BY died_at, run_id, sequence;

-- name: count_dead_letters
SELECT webhook_id, count(*) FROM dead_letters GROUP BY webhook_id;

-- name: queue_dead_letters
WITH enabled AS (UPDATE webhooks SET disabled = FALSE, retry_at = NULL WHERE webhook_id = $1)
UPDATE dead_letters SET queued = TRUE WHERE webhook_id = $1 AND ($2::TEXT IS NULL OR event_id = $2) RETURNING 1;

-- name: bury_dead_letter
DELETE FROM dead_letters WHERE webhook_id = $1 AND event_id = $2;

-- name: kill_dead_letter
UPDATE dead_letters SET queued = FALSE, attempts = $4, reason = $3 WHERE webhook_id = $1 AND event_id = $2;
