-- The workspace of a run, as its first event says: its identity, and the folder. Empty: from before runs had one. The
-- workspace of a session is that of its latest run.
ALTER TABLE runs ADD COLUMN workspace TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN folder    TEXT NOT NULL DEFAULT '';

CREATE INDEX runs_of_workspace ON runs (workspace);

-- What need not be asked for again in a session, until it continues in another workspace. What was granted before is
-- dropped, because its workspace is unknown.
DROP TABLE grants;
CREATE TABLE grants (
    session_id TEXT    NOT NULL,
    workspace  TEXT    NOT NULL,
    tool       TEXT    NOT NULL,
    pattern    TEXT    NOT NULL,
    run        INTEGER NOT NULL,               -- in which it was granted
    PRIMARY KEY (session_id, workspace, tool, pattern, run)
) STRICT, WITHOUT ROWID;

-- The workspace of the run that saved a memory. Empty: none, or from before memories had one.
ALTER TABLE memories ADD COLUMN workspace TEXT NOT NULL DEFAULT '';

DROP INDEX memories_once;
CREATE UNIQUE INDEX memories_once ON memories (agent_id, owner, workspace, digest) WHERE kind = 'long_term';
CREATE INDEX memories_of_workspace ON memories (agent_id, workspace, owner);
CREATE INDEX notes_of_workspace    ON memories (agent_id, workspace, created_at) WHERE kind = 'journal';

-- Several people use the token: it acts for the user that each request names.
ALTER TABLE tokens ADD COLUMN multi_user INTEGER NOT NULL DEFAULT 0;
