-- name: places_taken
SELECT count(*) FROM runs WHERE agent_id = ? AND worker IS NOT NULL AND id <> ?;

-- name: next_of_agent
SELECT run_id FROM runs AS due
WHERE agent_id = ?1 AND places IS NOT NULL AND worker IS NULL AND outcome IS NULL AND wake_at <= ?2
  AND NOT EXISTS (
      SELECT 1 FROM runs AS earlier
      WHERE earlier.session_id = due.session_id AND earlier.outcome IS NULL AND earlier.id < due.id)
ORDER BY id LIMIT max(0, ?3 - (SELECT count(*) FROM runs WHERE agent_id = ?1 AND worker IS NOT NULL));

-- name: runnable
WITH due AS NOT MATERIALIZED (
    SELECT id, run_id, agent_id, worker, places FROM runs AS one
    WHERE ((worker IS NULL AND wake_at <= ?1) OR (worker IS NOT NULL AND lease_until <= ?1))
      AND outcome IS NULL
      AND NOT EXISTS (
          SELECT 1 FROM runs AS earlier
          WHERE earlier.session_id = one.session_id AND earlier.outcome IS NULL AND earlier.id < one.id)
), in_line AS (
    SELECT *, row_number() OVER (PARTITION BY agent_id, worker IS NULL ORDER BY id) AS number,
           (SELECT count(*) FROM runs WHERE agent_id = due.agent_id AND worker IS NOT NULL) AS taken
    FROM due WHERE places IS NOT NULL
)
SELECT run_id FROM (
    SELECT * FROM (SELECT id, run_id FROM due WHERE places IS NULL ORDER BY id LIMIT ?2)
    UNION ALL
    SELECT id, run_id FROM in_line WHERE iif(worker IS NULL, taken + number, taken) <= places
)
ORDER BY id LIMIT ?2;
