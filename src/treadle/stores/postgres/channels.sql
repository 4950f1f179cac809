-- name: channel_people
SELECT channel, sender, name, owner, grants, added_at FROM channel_people
WHERE ($1::TEXT IS NULL OR channel = $1) AND ($2::TEXT IS NULL OR sender = $2) ORDER BY added_at, channel, sender;

-- name: keep_channel_person
INSERT INTO channel_people (channel, sender, name, owner, grants, added_at) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (channel, sender) DO UPDATE SET name = excluded.name, owner = excluded.owner, grants = excluded.grants;

-- name: remove_channel_person
DELETE FROM channel_people WHERE channel = $1 AND sender = $2 RETURNING 1;

-- name: expire_channel_codes
DELETE FROM channel_codes WHERE expires_at <= $1;

-- name: channel_codes
SELECT code, channel, sender, name, conversation, expires_at, owner, grants FROM channel_codes
ORDER BY expires_at, code;

-- name: add_channel_code
INSERT INTO channel_codes (code, channel, sender, name, conversation, expires_at, owner, grants)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (code) DO NOTHING;

-- name: remove_channel_code
DELETE FROM channel_codes WHERE code = $1 RETURNING 1;

-- name: channel_conversation
SELECT channel, conversation, session_id, owner, is_direct FROM channel_conversations
WHERE channel = $1 AND conversation = $2;

-- name: keep_channel_conversation
INSERT INTO channel_conversations (channel, conversation, session_id, owner, is_direct) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (channel, conversation) DO UPDATE SET session_id = excluded.session_id, owner = excluded.owner;

-- name: channel_cursor
SELECT cursor FROM channel_cursors WHERE channel = $1;

-- name: keep_channel_cursor
INSERT INTO channel_cursors (channel, cursor) VALUES ($1, $2)
ON CONFLICT (channel) DO UPDATE SET cursor = excluded.cursor;

-- name: receive_channel_message
INSERT INTO channel_inbox (channel, message_id, conversation, received_at, content, state)
VALUES ($1, $2, $3, $4, $5, 'new') ON CONFLICT (channel, message_id) DO NOTHING RETURNING 1;

-- name: channel_inbox
SELECT number, content, state, run_id FROM channel_inbox
WHERE channel = $1 AND state <> 'done' AND ($2::TEXT IS NULL OR conversation = $2) ORDER BY number;

-- name: channel_received
SELECT number, content, state, run_id FROM channel_inbox WHERE channel = $1 AND message_id = $2;

-- name: replace_channel_message
UPDATE channel_inbox SET content = $3 WHERE channel = $1 AND message_id = $2 AND state = 'new' RETURNING 1;

-- name: start_channel_message
UPDATE channel_inbox SET state = 'running', run_id = $3
WHERE channel = $1 AND message_id = $2 AND state = 'new';

-- name: finish_channel_messages
-- The IDs are kept to recognise repeated messages; the content is not.
UPDATE channel_inbox
SET state = 'done', content = '{"message_id":"","conversation":"","sender":""}'
WHERE channel = $1 AND state <> 'done' AND (message_id = $2 OR run_id = $3);

-- name: add_channel_output
INSERT INTO channel_outbox (channel, key, conversation, state, created_at, content, run_id)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (channel, key) DO UPDATE SET state = excluded.state, content = excluded.content
WHERE channel_outbox.state = 'draft' AND excluded.state = 'ready';

-- name: close_channel_drafts
UPDATE channel_outbox SET state = 'sent', content = '{"key":"","conversation":"","text":""}'
WHERE channel = $1 AND run_id = $2 AND state = 'draft';

-- name: channel_outbox
SELECT number, key, conversation, state, content, message_id, attempts, first_failed_at, retry_at, run_id, problem
FROM channel_outbox WHERE channel = $1 AND state = 'ready' AND ($2::TEXT IS NULL OR conversation = $2) ORDER BY number;

-- name: channel_output
SELECT number, key, conversation, state, content, message_id, attempts, first_failed_at, retry_at, run_id, problem
FROM channel_outbox
WHERE channel = $1 AND (key = $2 OR ($3::TEXT IS NOT NULL AND message_id = $3 AND conversation = $4)) LIMIT 1;

-- name: settle_channel_output
UPDATE channel_outbox
SET state = CASE WHEN state = 'ready' AND $3::TEXT = 'draft' THEN state ELSE $3::TEXT END, message_id = $4, attempts = $5,
    first_failed_at = $6, retry_at = $7, problem = $8,
    content = CASE WHEN state = 'ready' AND $3::TEXT = 'draft' THEN content ELSE $9::TEXT END
WHERE number = $1 AND channel = $2;

-- name: channel_counts
SELECT state, count(*) FROM channel_inbox WHERE channel = $1 AND state <> 'done' GROUP BY state
UNION ALL
SELECT state, count(*) FROM channel_outbox WHERE channel = $1 AND state IN ('ready', 'failed') GROUP BY state;

-- name: keep_channel_state
INSERT INTO channel_states (channel, status, account, reason, since, retry_at, recorded_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (channel) DO UPDATE SET status = excluded.status, account = excluded.account, reason = excluded.reason,
    since = excluded.since, retry_at = excluded.retry_at, recorded_at = excluded.recorded_at;

-- name: channel_states
SELECT channel, status, account, reason, since, retry_at, recorded_at, EXISTS (
    SELECT 1 FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND objsubid = 1
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND ((classid::BIGINT << 32) | objid::BIGINT) = hashtextextended('treadle/channel/' || channel, 3))
FROM channel_states ORDER BY channel;

-- name: channel_latest_conversations
SELECT conversation FROM channel_inbox WHERE channel = $1
GROUP BY conversation ORDER BY max(number) DESC LIMIT $2;

-- name: channel_conversations_after
SELECT DISTINCT conversation FROM channel_inbox WHERE channel = $1 AND conversation > $2
ORDER BY conversation LIMIT $3;

-- name: forget_channel_conversations
-- Those without a session: a message that started no run has created them.
DELETE FROM channel_conversations
WHERE NOT EXISTS (SELECT 1 FROM runs WHERE runs.session_id = channel_conversations.session_id)
  AND NOT EXISTS (
    SELECT 1 FROM channel_inbox
    WHERE channel_inbox.channel = channel_conversations.channel
      AND channel_inbox.conversation = channel_conversations.conversation);

-- name: forget_channel_inbox
DELETE FROM channel_inbox WHERE state = 'done' AND received_at < $1;

-- name: forget_channel_outbox
DELETE FROM channel_outbox
WHERE (state IN ('sent', 'failed') OR (state = 'draft' AND run_id IS NULL)) AND created_at < $1;
