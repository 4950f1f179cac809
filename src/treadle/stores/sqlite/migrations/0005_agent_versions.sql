-- Every content that the file of an agent had, without secrets. An empty one: the agent was deleted.
CREATE TABLE agent_versions (
    agent    TEXT    NOT NULL,
    number   INTEGER NOT NULL,
    text     TEXT    NOT NULL,
    at       REAL    NOT NULL,
    author   TEXT    NOT NULL,
    origin   TEXT    NOT NULL,
    restored INTEGER,                          -- the version that it repeats
    PRIMARY KEY (agent, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE agent_labels (
    agent  TEXT    NOT NULL,
    label  TEXT    NOT NULL,
    number INTEGER NOT NULL,
    at     REAL    NOT NULL,
    author TEXT    NOT NULL,
    PRIMARY KEY (agent, label)
) STRICT, WITHOUT ROWID;

-- The approved skills that all processes on the database share, if they do.
CREATE TABLE shared_skills (
    name   TEXT NOT NULL PRIMARY KEY,
    sha256 TEXT NOT NULL,                      -- empty: the approval was revoked
    files  BLOB NOT NULL,
    at     REAL NOT NULL,
    author TEXT NOT NULL
) STRICT, WITHOUT ROWID;
