-- name: database_facts
SELECT user_version, (SELECT count(*) FROM agents), (SELECT count(*) FROM runs),
       (SELECT count(*) FROM runs WHERE outcome IS NULL), (SELECT count(*) FROM events)
FROM pragma_user_version;

-- name: database_objects
SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY type, name;

-- name: guards_fired
SELECT type, count(*) FROM (SELECT type FROM events ORDER BY position DESC LIMIT ?)
WHERE type IN ('loop_warning', 'tool_call_blocked', 'stuck_detected', 'recovery_action', 'phantom_action', 'empty_turn',
               'continuation', 'budget_hint', 'budget_exhausted', 'quota_exceeded', 'output_rejected', 'call_written',
               'calls_dropped', 'run_quarantined', 'context_trimmed', 'context_compacted')
GROUP BY type ORDER BY type;
