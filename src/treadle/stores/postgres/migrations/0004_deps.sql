-- Deps of runs are in the memory of processes. `deps_holder` is the worker that has those of a run: empty if the process
-- that submitted it executes nothing, null if the run has no deps of its own.
ALTER TABLE runs ADD COLUMN deps_holder TEXT;

-- Processes that have deps of runs, or make them, and until when they are known to be alive.
CREATE TABLE deps_holders (
    worker TEXT             NOT NULL PRIMARY KEY,
    makes  BOOLEAN          NOT NULL,
    until  DOUBLE PRECISION NOT NULL
);

DROP FUNCTION IF EXISTS enqueue(TEXT[], TEXT[], FLOAT8);  -- returned nothing
