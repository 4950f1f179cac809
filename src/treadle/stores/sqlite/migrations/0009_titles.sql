-- The title that a caller gave a session, on its first run; null: the title comes from the first message.
ALTER TABLE runs ADD COLUMN title TEXT;
