-- How many runs of its agent are worked on at a time, for a run to be one of them; null: any number.
ALTER TABLE runs ADD COLUMN places INTEGER;

CREATE INDEX runs_at_work ON runs (agent_id) WHERE worker IS NOT NULL;
CREATE INDEX runs_in_line ON runs (agent_id, id) WHERE places IS NOT NULL AND worker IS NULL AND outcome IS NULL;
