-- What the process that holds the connection of a channel last recorded about it.
CREATE TABLE channel_states (
    channel     TEXT NOT NULL PRIMARY KEY,
    status      TEXT NOT NULL,
    account     TEXT NOT NULL,
    reason      TEXT NOT NULL,
    since       DOUBLE PRECISION NOT NULL,     -- when the status began
    retry_at    DOUBLE PRECISION,
    recorded_at DOUBLE PRECISION NOT NULL
);
