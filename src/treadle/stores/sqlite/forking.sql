-- name: keep_results_of_fork
INSERT OR REPLACE INTO results (session_id, run, call_id, content)
SELECT fork.session_id, fork.id, kept.call_id, kept.content
FROM runs AS fork, runs AS old JOIN results AS kept ON kept.session_id = old.session_id AND kept.run <= old.id
WHERE fork.id = ? AND old.run_id = ?
ORDER BY kept.id;
