-- Concurrency limits of agents: an owned run takes one of the places of its agent.

-- Return how many other runs of its agent are owned.
CREATE OR REPLACE FUNCTION places_taken(found runs) RETURNS BIGINT LANGUAGE sql AS $$
    SELECT count(*) FROM runs WHERE agent_id = found.agent_id AND worker IS NOT NULL AND id <> found.id
$$;

-- Return the runs of an agent that wait for a place and would now get one of this many.
CREATE OR REPLACE FUNCTION next_of_agent(agent_id_ TEXT, places_ INTEGER, now_ FLOAT8) RETURNS TEXT[]
LANGUAGE sql AS $$
    SELECT ARRAY(
        SELECT run_id FROM runs AS due
        WHERE agent_id = agent_id_ AND places IS NOT NULL AND worker IS NULL AND outcome IS NULL AND wake_at <= now_
          AND NOT EXISTS (
              SELECT 1 FROM runs AS earlier
              WHERE earlier.session_id = due.session_id AND earlier.outcome IS NULL AND earlier.id < due.id)
        ORDER BY id
        LIMIT greatest(0, places_ - (SELECT count(*) FROM runs WHERE agent_id = agent_id_ AND worker IS NOT NULL)))
$$;
