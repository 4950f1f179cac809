-- The run that a worker died with, if it owned no other.
ALTER TABLE deaths ADD COLUMN run INTEGER;
