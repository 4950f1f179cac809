-- The last sequence of a run is that of its last event: to write it a second time made every commit dearer.
ALTER TABLE runs DROP COLUMN sequence;
