-- Workers that died, or lost their lease, while they owned runs.
CREATE TABLE deaths (
    worker TEXT    NOT NULL PRIMARY KEY,
    runs   INTEGER NOT NULL,                        -- that it owned
    at     REAL    NOT NULL                         -- when the first of them was claimed again
) STRICT, WITHOUT ROWID;

-- The last worker that died while it owned the run; null: none has.
ALTER TABLE runs ADD COLUMN lost_worker TEXT;

CREATE INDEX runs_lost ON runs (lost_worker) WHERE lost_worker IS NOT NULL;
