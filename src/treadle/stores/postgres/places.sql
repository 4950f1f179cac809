-- name: runnable
WITH due AS NOT MATERIALIZED (
    SELECT id, run_id, agent_id, worker, places FROM runs AS one
    WHERE ((worker IS NULL AND wake_at <= coalesce($1, extract(epoch FROM clock_timestamp())))
           OR (worker IS NOT NULL AND lease_until <= coalesce($1, extract(epoch FROM clock_timestamp()))))
      AND outcome IS NULL
      AND (deps_holder IS NULL OR NOT is_held_elsewhere(
          deps_holder, $3, $4, coalesce($1, extract(epoch FROM clock_timestamp())::FLOAT8)))
      AND NOT EXISTS (
          SELECT 1 FROM runs AS earlier
          WHERE earlier.session_id = one.session_id AND earlier.outcome IS NULL AND earlier.id < one.id)
), in_line AS (
    SELECT *, row_number() OVER (PARTITION BY agent_id, worker IS NULL ORDER BY id) AS number,
           (SELECT count(*) FROM runs WHERE agent_id = due.agent_id AND worker IS NOT NULL) AS taken
    FROM due WHERE places IS NOT NULL
)
SELECT run_id FROM (
    (SELECT id, run_id FROM due WHERE places IS NULL ORDER BY id LIMIT $2)
    UNION ALL
    SELECT id, run_id FROM in_line WHERE CASE WHEN worker IS NULL THEN taken + number ELSE taken END <= places
) AS named
ORDER BY id LIMIT $2;
