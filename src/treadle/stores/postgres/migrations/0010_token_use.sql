-- When the token was last used, to the minute; null: never.
ALTER TABLE tokens ADD COLUMN last_used_at DOUBLE PRECISION;
