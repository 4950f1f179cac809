-- What lists show of a run besides its cost, tokens, steps and duration: JSON; empty: nothing is known.
ALTER TABLE run_summaries ADD COLUMN facts TEXT NOT NULL DEFAULT '';
