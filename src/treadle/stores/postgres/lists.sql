-- name: approval
SELECT approval_id, run_id, session_id, agent_id, parent_run_id, call_id, tool, arguments, reason, pattern,
       requested_at, expires_at, coalesce(decision, CASE WHEN outcome IS NOT NULL THEN 'expired' END),
       coalesce(name, ''), owner, coalesce(message, ''), workspace, folder
FROM approvals JOIN runs ON runs.id = approvals.run LEFT JOIN agents USING (agent_id)
     LEFT JOIN run_summaries ON run_summaries.run = runs.id
WHERE approval_id = $1;

-- name: pending_approvals
SELECT approval_id, run_id, session_id, agent_id, parent_run_id, call_id, tool, arguments, reason, pattern,
       requested_at, expires_at, decision, coalesce(name, ''), owner, coalesce(message, ''), workspace, folder
FROM approvals JOIN runs ON runs.id = approvals.run LEFT JOIN agents USING (agent_id)
     LEFT JOIN run_summaries ON run_summaries.run = runs.id
WHERE decision IS NULL AND outcome IS NULL AND ($1::TEXT IS NULL OR run_id = $1) ORDER BY requested_at;

-- name: grants
SELECT DISTINCT tool, pattern FROM runs AS this JOIN grants USING (session_id, workspace)
WHERE this.run_id = $1 AND grants.run <= this.id AND grants.run > coalesce(
    (SELECT max(id) FROM runs WHERE session_id = this.session_id AND workspace <> this.workspace AND id < this.id), 0)
ORDER BY tool, pattern;

-- name: revoke_grant
DELETE FROM grants USING runs AS this
WHERE this.run_id = $1 AND grants.session_id = this.session_id AND grants.workspace = this.workspace
  AND tool = $2 AND pattern = $3
RETURNING 1;

-- name: keep_result
INSERT INTO results (session_id, run, call_id, content) SELECT $1, id, $3, $4 FROM runs WHERE run_id = $2
ON CONFLICT (session_id, call_id, run) DO UPDATE SET content = excluded.content RETURNING id;

-- name: result
SELECT content FROM results WHERE session_id = $1 AND call_id = $2 ORDER BY id DESC LIMIT 1;

-- name: sessions
SELECT latest.session_id, coalesce(name, ''), first.run_id,
       (SELECT count(*) FROM runs WHERE session_id = latest.session_id),
       (SELECT count(*) FROM runs WHERE session_id = latest.session_id AND outcome IS NULL),
       first.created_at, latest.created_at,
       (SELECT count(*) FROM segments WHERE segments.session_id = latest.session_id), first.owner, first.title,
       first.session_model, first.session_mode, latest.workspace, latest.folder,
       (SELECT substr(data, 1, 2000) FROM events WHERE run = first.id AND sequence <= 8
        AND type IN ('user_message', 'run_forked') ORDER BY type DESC LIMIT 1)
FROM latest_runs_of_sessions($1, $2, $3, $4, $5, $6) AS found JOIN runs AS latest ON latest.id = found
     JOIN runs AS first ON first.id = (SELECT min(id) FROM runs AS one WHERE one.session_id = latest.session_id)
     LEFT JOIN agents ON agents.agent_id = first.agent_id
ORDER BY latest.id DESC;

-- name: session
SELECT latest.session_id, coalesce(name, ''), first.run_id,
       (SELECT count(*) FROM runs WHERE session_id = latest.session_id),
       (SELECT count(*) FROM runs WHERE session_id = latest.session_id AND outcome IS NULL),
       first.created_at, latest.created_at,
       (SELECT count(*) FROM segments WHERE segments.session_id = latest.session_id), first.owner, first.title,
       first.session_model, first.session_mode, latest.workspace, latest.folder,
       (SELECT substr(data, 1, 2000) FROM events WHERE run = first.id AND sequence <= 8
        AND type IN ('user_message', 'run_forked') ORDER BY type DESC LIMIT 1)
FROM runs AS latest
     JOIN runs AS first ON first.id = (SELECT min(id) FROM runs AS one WHERE one.session_id = latest.session_id)
     LEFT JOIN agents ON agents.agent_id = first.agent_id
WHERE latest.id = (SELECT max(id) FROM runs WHERE session_id = $1);

-- name: rename_session
UPDATE runs SET title = $2 WHERE id = (SELECT min(id) FROM runs WHERE session_id = $1);

-- name: set_model_of_session
UPDATE runs SET session_model = $2 WHERE id = (SELECT min(id) FROM runs WHERE session_id = $1);

-- name: set_mode_of_session
UPDATE runs SET session_mode = $2 WHERE id = (SELECT min(id) FROM runs WHERE session_id = $1);

-- name: basics_of_session
SELECT first.owner, coalesce(name, ''), first.session_model, first.session_mode, latest.workspace, latest.folder, latest.run_id
FROM runs AS first LEFT JOIN agents USING (agent_id)
     JOIN runs AS latest ON latest.id = (SELECT max(id) FROM runs WHERE session_id = $1)
WHERE first.session_id = $1 ORDER BY first.id LIMIT 1;

-- name: grave
SELECT session_id, deleted_at, deleted_by FROM deleted_sessions WHERE session_id = $1;

-- name: runs_of_session
SELECT run_id, session_id, agent_id, parent_run_id, status, outcome, created_at, wake_at, waiting_for, sequence,
       coalesce(name, ''), owner, coalesce(message, ''), cost, tokens, steps, duration_ms,
       coalesce(labels, ''), coalesce(facts, '')
FROM runs LEFT JOIN agents USING (agent_id) LEFT JOIN run_summaries ON run = runs.id WHERE session_id = $1 ORDER BY id;

-- name: ends_of_session
SELECT e.type, e.version, e.data
FROM runs JOIN events AS e ON e.run = runs.id AND e.sequence = runs.sequence
WHERE session_id = $1 AND outcome IS NOT NULL ORDER BY runs.id;

-- name: segments
SELECT segment_id, parent, run_id, reason, messages, opened_at
FROM segments JOIN runs ON runs.id = run WHERE segments.session_id = $1 ORDER BY segments.id;
