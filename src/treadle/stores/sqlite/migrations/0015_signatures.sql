-- How the sender of an inbound webhook signs.
ALTER TABLE hooks ADD COLUMN scheme TEXT NOT NULL DEFAULT 'standard';
