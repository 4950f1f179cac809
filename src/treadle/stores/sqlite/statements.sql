-- name: insert_run
INSERT INTO runs (run_id, session_id, agent_id, parent_run_id, submission_key, created_at, status, epoch, wake_at, places,
                  owner, workspace, folder, session_mode)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, 'pending', 0, ?7, ?8, ?9, ?10, ?11, ?13
WHERE NOT EXISTS (SELECT 1 FROM deleted_sessions WHERE session_id = ?2)
  AND coalesce((SELECT owner FROM runs WHERE session_id = ?2 ORDER BY id LIMIT 1), ?9) = ?9
  AND (?12 IS NULL
       OR coalesce((SELECT run_id FROM runs WHERE session_id = ?2 ORDER BY id DESC LIMIT 1), ?12) = ?12)
RETURNING id;

-- name: owner_of_session
SELECT owner FROM runs WHERE session_id = ? ORDER BY id LIMIT 1;

-- name: basics_of_session
SELECT first.owner, coalesce(name, ''), first.session_model, first.session_mode, latest.workspace, latest.folder, latest.run_id
FROM runs AS first LEFT JOIN agents USING (agent_id)
     JOIN runs AS latest ON latest.id = (SELECT max(id) FROM runs WHERE session_id = ?1)
WHERE first.session_id = ?1 ORDER BY first.id LIMIT 1;

-- name: run_of_submission
SELECT run_id FROM runs WHERE submission_key = ?;

-- name: run
SELECT id, session_id, agent_id, parent_run_id, status, outcome, epoch, worker, lease_until,
       (SELECT coalesce(max(sequence), 0) FROM events WHERE run = runs.id), counted, places
FROM runs WHERE run_id = ?;

-- name: earlier_unfinished
SELECT run_id FROM runs WHERE session_id = ? AND outcome IS NULL AND id < ? LIMIT 1;

-- name: cancel_requested
SELECT 1 FROM events WHERE run = ? AND type = 'cancel_requested' LIMIT 1;

-- name: later_unfinished
SELECT id, run_id FROM runs WHERE session_id = ? AND outcome IS NULL AND id > ? ORDER BY id LIMIT 1;

-- name: open_epoch
UPDATE runs SET epoch = ?, worker = ?, lease_until = ?, status = ? WHERE id = ?;

-- name: go_on
UPDATE runs SET status = 'running', waiting_for = NULL WHERE id = ?;

-- name: insert_events
INSERT INTO events (position, run, sequence, event_id, timestamp, type, version, data) VALUES

-- name: events_after
SELECT sequence, event_id, timestamp, type, version, data FROM events
WHERE run = ? AND sequence > ? ORDER BY sequence LIMIT ?;

-- name: said_before
SELECT messages FROM said
WHERE session_id = ?1 AND run < ?2
  AND run >= coalesce((SELECT max(run) FROM said WHERE session_id = ?1 AND run < ?2 AND whole), 0)
ORDER BY run;

-- name: insert_said
INSERT INTO said (session_id, run, messages, whole) VALUES (?, ?, ?, ?);

-- name: last_said
SELECT max(run) FROM said WHERE session_id = ? AND run < ?;

-- name: session_facts
SELECT session_notes.workspace, notes, run_id, segment_id, parent, reason, messages, opened_at
FROM runs LEFT JOIN session_notes ON session_notes.session_id = ?1
     LEFT JOIN (SELECT * FROM segments WHERE session_id = ?1 ORDER BY id DESC LIMIT 1)
WHERE runs.id = ?2;

-- name: insert_segment
INSERT INTO segments (segment_id, session_id, parent, run, reason, messages, opened_at)
SELECT ?, session_id, ?, id, ?, ?, ? FROM runs WHERE id = ?;

-- name: keep_notes
INSERT OR REPLACE INTO session_notes (session_id, workspace, notes) SELECT session_id, ?, ? FROM runs WHERE id = ?;

-- name: forget_notes
DELETE FROM session_notes WHERE session_id = (SELECT session_id FROM runs WHERE id = ?);

-- name: let_go
UPDATE runs SET status = ?, waiting_for = coalesce(?, waiting_for), wake_at = ?, counted = ?, worker = NULL,
                lease_until = NULL
WHERE id = ?;

-- name: end_run
UPDATE runs SET status = ?, outcome = ?, counted = ?, waiting_for = NULL, wake_at = NULL, worker = NULL,
                lease_until = NULL
WHERE id = ?;

-- name: wake
UPDATE runs SET wake_at = ? WHERE id = ?;

-- name: delivery
SELECT sequence FROM deliveries WHERE run = ? AND key = ?;

-- name: insert_delivery
INSERT INTO deliveries (run, key, sequence) VALUES (?, ?, ?);

-- name: renew
UPDATE runs SET lease_until = ? WHERE worker = ? RETURNING run_id;

-- name: void_leases
UPDATE runs SET lease_until = 0 WHERE worker IS NOT NULL;

-- name: record
SELECT run_id, session_id, agent_id, parent_run_id, status, outcome, created_at, wake_at, waiting_for,
       (SELECT coalesce(max(sequence), 0) FROM events WHERE run = runs.id),
       coalesce((SELECT name FROM agents WHERE agents.agent_id = runs.agent_id), ''), owner,
       coalesce(message, ''), cost, tokens, steps, duration_ms, coalesce(labels, ''), coalesce(facts, '')
FROM runs LEFT JOIN run_summaries ON run = runs.id WHERE run_id = ?;

-- name: latest_position
SELECT max(coalesce((SELECT max(position) FROM events), 0),
           coalesce((SELECT max(position) FROM deleted_sessions), 0));

-- name: events_after_position
SELECT position, run_id, session_id, agent_id, parent_run_id, sequence, event_id, timestamp, type, version, data
FROM events JOIN runs ON runs.id = events.run
WHERE position > ?1
  AND (?2 IS NULL OR agent_id IN (SELECT agent_id FROM agents WHERE name IN (SELECT value FROM json_each(?2))))
ORDER BY position LIMIT ?3;

-- name: events_after_position_of_owner
SELECT position, run_id, session_id, agent_id, parent_run_id, sequence, event_id, timestamp, type, version, data
FROM events JOIN runs ON runs.id = events.run
WHERE position > ?1 AND owner = ?4
  AND (?2 IS NULL OR agent_id IN (SELECT agent_id FROM agents WHERE name IN (SELECT value FROM json_each(?2))))
ORDER BY position LIMIT ?3;

-- name: unfinished
SELECT run_id, session_id, agent_id, parent_run_id, status, outcome, created_at, wake_at, waiting_for,
       (SELECT coalesce(max(sequence), 0) FROM events WHERE run = runs.id),
       coalesce((SELECT name FROM agents WHERE agents.agent_id = runs.agent_id), ''), owner,
       coalesce(message, ''), cost, tokens, steps, duration_ms, coalesce(labels, ''), coalesce(facts, '')
FROM runs LEFT JOIN run_summaries ON run = runs.id WHERE outcome IS NULL ORDER BY id;

-- name: unfinished_of_session
SELECT run_id, session_id, agent_id, parent_run_id, status, outcome, created_at, wake_at, waiting_for,
       (SELECT coalesce(max(sequence), 0) FROM events WHERE run = runs.id),
       coalesce((SELECT name FROM agents WHERE agents.agent_id = runs.agent_id), ''), owner,
       coalesce(message, ''), cost, tokens, steps, duration_ms, coalesce(labels, ''), coalesce(facts, '')
FROM runs LEFT JOIN run_summaries ON run = runs.id WHERE outcome IS NULL AND session_id = ? ORDER BY id;

-- name: submitted
SELECT run_id, 0 FROM runs WHERE submission_key = ?
UNION ALL
SELECT runs.run_id, deliveries.sequence FROM deliveries JOIN runs ON runs.id = deliveries.run WHERE deliveries.key = ?
LIMIT 1;

-- name: agent
SELECT agent_id FROM agents WHERE name = ?;

-- name: insert_agent
INSERT INTO agents (agent_id, name) VALUES (?, ?);

-- name: insert_approval
INSERT INTO approvals (approval_id, run, call_id, tool, arguments, reason, pattern, requested_at, expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: decide_approval
UPDATE approvals SET decision = ? WHERE approval_id = ? AND decision IS NULL;

-- name: approval
SELECT approval_id, run_id, session_id, agent_id, parent_run_id, call_id, tool, arguments, reason, pattern,
       requested_at, expires_at, coalesce(decision, iif(outcome IS NULL, NULL, 'expired')),
       coalesce((SELECT name FROM agents WHERE agents.agent_id = runs.agent_id), ''), owner,
       coalesce((SELECT message FROM run_summaries WHERE run_summaries.run = runs.id), ''), workspace, folder
FROM approvals JOIN runs ON runs.id = run WHERE approval_id = ?;

-- name: state_of_approval
SELECT expires_at, coalesce(decision, iif(outcome IS NULL, NULL, 'expired'))
FROM approvals JOIN runs ON runs.id = run WHERE approval_id = ?;

-- name: pending_approvals
SELECT approval_id, run_id, session_id, agent_id, parent_run_id, call_id, tool, arguments, reason, pattern,
       requested_at, expires_at, decision,
       coalesce((SELECT name FROM agents WHERE agents.agent_id = runs.agent_id), ''), owner,
       coalesce((SELECT message FROM run_summaries WHERE run_summaries.run = runs.id), ''), workspace, folder
FROM approvals JOIN runs ON runs.id = run WHERE decision IS NULL AND outcome IS NULL ORDER BY requested_at;

-- name: pending_approvals_of_run
SELECT approval_id, run_id, session_id, agent_id, parent_run_id, call_id, tool, arguments, reason, pattern,
       requested_at, expires_at, decision,
       coalesce((SELECT name FROM agents WHERE agents.agent_id = runs.agent_id), ''), owner,
       coalesce((SELECT message FROM run_summaries WHERE run_summaries.run = runs.id), ''), workspace, folder
FROM approvals JOIN runs ON runs.id = run
WHERE decision IS NULL AND outcome IS NULL AND run_id = ? ORDER BY requested_at;

-- name: grants
SELECT DISTINCT tool, pattern FROM runs AS this JOIN grants USING (session_id, workspace)
WHERE this.run_id = ? AND grants.run <= this.id AND grants.run > coalesce(
    (SELECT max(id) FROM runs WHERE session_id = this.session_id AND workspace <> this.workspace AND id < this.id), 0);

-- name: revoke_grant
DELETE FROM grants
WHERE (session_id, workspace) = (SELECT session_id, workspace FROM runs WHERE run_id = ?) AND tool = ? AND pattern = ?
RETURNING 1;

-- name: grant_what_was_approved
INSERT OR IGNORE INTO grants (session_id, workspace, tool, pattern, run)
SELECT session_id, workspace, tool, pattern, run FROM approvals JOIN runs ON runs.id = run
WHERE approval_id = ? AND pattern IS NOT NULL;

-- name: keep_result
INSERT OR REPLACE INTO results (session_id, run, call_id, content)
VALUES (?, (SELECT id FROM runs WHERE run_id = ?), ?, ?);

-- name: result
SELECT content FROM results WHERE session_id = ? AND call_id = ? ORDER BY id DESC LIMIT 1;

-- A session is listed by its latest run, so that a page reads no more runs than it lists sessions, and what lies between.
-- name: latest_runs_of_sessions
SELECT id FROM runs AS latest
WHERE id = (SELECT max(id) FROM runs WHERE session_id = latest.session_id)
  AND (?1 IS NULL OR id < (SELECT max(id) FROM runs WHERE session_id = ?1))
  AND (?2 IS NULL OR (SELECT name FROM runs AS one JOIN agents USING (agent_id) WHERE one.session_id = latest.session_id
                      ORDER BY one.id LIMIT 1) IN (SELECT value FROM json_each(?2)))
  AND (?4 OR (SELECT parent_run_id FROM runs AS one WHERE session_id = latest.session_id ORDER BY id LIMIT 1) IS NULL)
ORDER BY id DESC LIMIT ?3;

-- name: latest_runs_of_sessions_of_owner
SELECT id FROM runs AS latest
WHERE owner = ?5 AND id = (SELECT max(id) FROM runs WHERE session_id = latest.session_id)
  AND (?1 IS NULL OR id < (SELECT max(id) FROM runs WHERE session_id = ?1 AND owner = ?5))
  AND (?2 IS NULL OR (SELECT name FROM runs AS one JOIN agents USING (agent_id) WHERE one.session_id = latest.session_id
                      ORDER BY one.id LIMIT 1) IN (SELECT value FROM json_each(?2)))
  AND (?4 OR (SELECT parent_run_id FROM runs AS one WHERE session_id = latest.session_id ORDER BY id LIMIT 1) IS NULL)
ORDER BY id DESC LIMIT ?3;

-- name: latest_runs_of_sessions_in_workspace
SELECT id FROM runs AS latest
WHERE workspace = ?6 AND id = (SELECT max(id) FROM runs WHERE session_id = latest.session_id)
  AND (?5 IS NULL OR owner = ?5)
  AND (?1 IS NULL OR id < (SELECT max(id) FROM runs WHERE session_id = ?1 AND (?5 IS NULL OR owner = ?5)))
  AND (?2 IS NULL OR (SELECT name FROM runs AS one JOIN agents USING (agent_id) WHERE one.session_id = latest.session_id
                      ORDER BY one.id LIMIT 1) IN (SELECT value FROM json_each(?2)))
  AND (?4 OR (SELECT parent_run_id FROM runs AS one WHERE session_id = latest.session_id ORDER BY id LIMIT 1) IS NULL)
ORDER BY id DESC LIMIT ?3;

-- name: latest_run_of_session
SELECT max(id) FROM runs WHERE session_id = ?;

-- name: sessions
SELECT latest.session_id, (SELECT name FROM agents WHERE agents.agent_id = first.agent_id), first.run_id,
       (SELECT count(*) FROM runs WHERE session_id = latest.session_id),
       (SELECT count(*) FROM runs WHERE session_id = latest.session_id AND outcome IS NULL),
       first.created_at, latest.created_at,
       (SELECT count(*) FROM segments WHERE segments.session_id = latest.session_id),
       first.owner, first.title, first.session_model, first.session_mode, latest.workspace, latest.folder,
       (SELECT substr(data, 1, 2000) FROM events WHERE run = first.id AND sequence <= 8
        AND type IN ('user_message', 'run_forked') ORDER BY type DESC LIMIT 1)
FROM runs AS latest
     JOIN runs AS first ON first.id = (SELECT min(id) FROM runs AS one WHERE one.session_id = latest.session_id)
WHERE latest.id IN (SELECT value FROM json_each(?)) ORDER BY latest.id DESC;

-- name: rename_session
UPDATE runs SET title = ?2 WHERE id = (SELECT min(id) FROM runs WHERE session_id = ?1);

-- name: set_model_of_session
UPDATE runs SET session_model = ?2 WHERE id = (SELECT min(id) FROM runs WHERE session_id = ?1);

-- name: set_mode_of_session
UPDATE runs SET session_mode = ?2 WHERE id = (SELECT min(id) FROM runs WHERE session_id = ?1);

-- name: keep_choices_of_fork
UPDATE runs SET (title, session_model) =
    (SELECT first.title, first.session_model FROM runs AS old JOIN runs AS first USING (session_id)
     WHERE old.run_id = ?2 ORDER BY first.id LIMIT 1)
WHERE id = ?1;

-- name: runs_of_session
SELECT run_id, session_id, agent_id, parent_run_id, status, outcome, created_at, wake_at, waiting_for,
       (SELECT coalesce(max(sequence), 0) FROM events WHERE run = runs.id),
       coalesce((SELECT name FROM agents WHERE agents.agent_id = runs.agent_id), ''), owner,
       coalesce(message, ''), cost, tokens, steps, duration_ms, coalesce(labels, ''), coalesce(facts, '')
FROM runs LEFT JOIN run_summaries ON run = runs.id WHERE session_id = ? ORDER BY id;

-- name: ends_of_session
SELECT type, version, data FROM events JOIN (
    SELECT id AS run, (SELECT max(sequence) FROM events WHERE events.run = runs.id) AS sequence
    FROM runs WHERE session_id = ? AND outcome IS NOT NULL
) USING (run, sequence) ORDER BY run;

-- name: segments
SELECT segment_id, parent, run_id, reason, messages, opened_at
FROM segments JOIN runs ON runs.id = run WHERE segments.session_id = ? ORDER BY segments.id;

-- name: lose
UPDATE runs SET lost_worker = ? WHERE id = ?;

-- name: record_death
INSERT INTO deaths (worker, runs, at, run)
SELECT ?1, owned, ?2, iif(owned = 1, ?4, NULL)
FROM (SELECT count(*) AS owned FROM runs WHERE worker = ?1 OR lost_worker = ?1) WHERE TRUE
ON CONFLICT (worker) DO UPDATE SET runs = excluded.runs, at = excluded.at, run = excluded.run WHERE at <= ?3;

-- name: death
SELECT runs, (
    SELECT count(*) FILTER (WHERE run IS NULL OR run = ?3) + count(DISTINCT run) FILTER (WHERE run <> ?3)
    FROM deaths WHERE at > ?2
) FROM deaths WHERE worker = ?1;

-- name: forget_deaths
DELETE FROM deaths WHERE at <= ?;

-- name: end_of_search
SELECT coalesce(max(position), 0) + 1 FROM events;

-- name: said_before_position
SELECT position FROM events
WHERE position < ?1 AND position > ?2 AND type IN ('user_message', 'message_steered', 'run_forked', 'run_end')
ORDER BY position DESC LIMIT 1 OFFSET ?3;

-- name: search
SELECT position, run_id, session_id, runs.agent_id, parent_run_id, sequence, event_id, timestamp, type, version, data
FROM events CROSS JOIN runs ON runs.id = events.run
WHERE position < ?1 AND position > ?2 AND type IN ('user_message', 'message_steered', 'run_forked', 'run_end')
  AND CAST(data AS TEXT) LIKE ?3 ESCAPE '\'
  AND (?4 IS NULL OR agent_id IN (SELECT agent_id FROM agents WHERE name IN (SELECT value FROM json_each(?4))))
  AND (?5 IS NULL OR owner = ?5)
ORDER BY position DESC LIMIT ?6;

-- name: candidates
SELECT rowid FROM said_parts WHERE said_parts MATCH ?1 AND rowid < ?2 ORDER BY rowid DESC LIMIT ?3;

-- name: said_at_positions
SELECT position, run_id, session_id, runs.agent_id, parent_run_id, sequence, event_id, timestamp, events.type, version, data
FROM json_each(?1) CROSS JOIN events ON position = value CROSS JOIN runs ON runs.id = events.run
WHERE (?2 IS NULL OR agent_id IN (SELECT agent_id FROM agents WHERE name IN (SELECT value FROM json_each(?2))))
  AND (?3 IS NULL OR owner = ?3)
ORDER BY position DESC;

-- name: indexed_to
SELECT position FROM said_index;

-- name: said_after_index
SELECT position, type, version, data, owner FROM events CROSS JOIN runs ON runs.id = events.run
WHERE position > (SELECT position FROM said_index)
  AND type IN ('user_message', 'message_steered', 'run_forked', 'run_end')
ORDER BY position LIMIT ?;

-- name: said_in_session
SELECT position, type, version, data, owner FROM runs CROSS JOIN events ON runs.id = events.run
WHERE session_id = ? AND position <= (SELECT position FROM said_index)
  AND type IN ('user_message', 'message_steered', 'run_forked', 'run_end');

-- name: index_text
INSERT INTO said_parts (rowid, text) VALUES (?, ?);

-- name: unindex_text
INSERT INTO said_parts (said_parts, rowid, text) VALUES ('delete', ?, ?);

-- name: move_index
UPDATE said_index SET position = ?;

-- name: workers
SELECT worker, count(*), min(lease_until) FROM runs WHERE worker IS NOT NULL GROUP BY worker ORDER BY worker;

-- name: open_summary
INSERT INTO run_summaries (run, message) VALUES (?, ?) ON CONFLICT (run) DO UPDATE SET message = excluded.message;

-- name: close_summary
INSERT INTO run_summaries (run, cost, tokens, steps, duration_ms, facts) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (run) DO UPDATE SET cost = excluded.cost, tokens = excluded.tokens, steps = excluded.steps,
                                duration_ms = excluded.duration_ms, facts = excluded.facts;

-- name: add_progress
INSERT INTO run_summaries (run, cost, tokens, steps, facts) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (run) DO UPDATE SET cost = coalesce(cost, 0) + excluded.cost, tokens = coalesce(tokens, 0) + excluded.tokens,
                                steps = max(coalesce(steps, 0), excluded.steps), facts = excluded.facts;

-- name: note_labels
INSERT INTO run_summaries (run, labels) VALUES (?, ?);

-- name: insert_label
INSERT INTO run_labels (key, value, run, owner) VALUES (?, ?, ?, ?);
