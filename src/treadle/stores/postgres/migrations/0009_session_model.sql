-- The model that a caller chose for a session, on its first run; null: each run uses the model of its agent.
ALTER TABLE runs ADD COLUMN session_model TEXT;
