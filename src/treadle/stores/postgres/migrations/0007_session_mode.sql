-- The mode of the session, on its first run; or null.
ALTER TABLE runs ADD COLUMN session_mode TEXT;
