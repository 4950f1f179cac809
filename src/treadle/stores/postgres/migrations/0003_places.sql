-- The concurrency limit of the run's agent, or null. A process that claims or releases a run with a limit holds the
-- lock of its agent.
ALTER TABLE runs ADD COLUMN places INTEGER;

CREATE INDEX runs_at_work ON runs (agent_id) WHERE worker IS NOT NULL;
CREATE INDEX runs_in_line ON runs (agent_id, id) WHERE places IS NOT NULL AND worker IS NULL AND outcome IS NULL;
