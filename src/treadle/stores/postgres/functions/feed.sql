-- The feed: all events of all runs as one sequence.

-- Announce, until the end of this transaction, that it may still add events after the current last position.
CREATE OR REPLACE FUNCTION hold_feed() RETURNS VOID LANGUAGE sql AS $$
    SELECT pg_advisory_xact_lock_shared((7436::BIGINT << 48) | CASE WHEN is_called THEN last_value ELSE 0 END)
    FROM events_position_seq
$$;

-- Return the position up to which no transaction can add events any more. A reader of the feed must call this first, in a
-- statement of its own: what is committed between the two is visible or above the bound. The last position is read
-- first: a transaction that took it, or an earlier one, has announced itself by then or is committed.
CREATE OR REPLACE FUNCTION feed_bound() RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
    last BIGINT := (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM events_position_seq);
BEGIN
    RETURN least(last, (
        SELECT min(((classid::BIGINT & 65535) << 32) | objid::BIGINT) FROM pg_locks
        WHERE locktype = 'advisory' AND objsubid = 1 AND classid::BIGINT >> 16 = 7436
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())));
END $$;

CREATE OR REPLACE FUNCTION feed(after_ BIGINT, agents_ TEXT[], limit_ INTEGER, owner_ TEXT)
RETURNS TABLE (place BIGINT, run_id TEXT, session_id TEXT, agent_id TEXT, parent_run_id TEXT, sequence INTEGER,
               event_id TEXT, stamp FLOAT8, type TEXT, version SMALLINT, data BYTEA) LANGUAGE plpgsql AS $$
DECLARE
    bound BIGINT := feed_bound();
BEGIN
    RETURN QUERY
    SELECT e.position, r.run_id, r.session_id, r.agent_id, r.parent_run_id, e.sequence, e.event_id, e.timestamp,
           e.type, e.version, e.data
    FROM events AS e JOIN runs AS r ON r.id = e.run
    WHERE e.position > after_ AND e.position <= bound
      AND (owner_ IS NULL OR r.owner = owner_)
      AND (agents_ IS NULL OR r.agent_id IN (SELECT a.agent_id FROM agents AS a WHERE a.name = ANY(agents_)))
    ORDER BY e.position LIMIT limit_;
END $$;

CREATE OR REPLACE FUNCTION feed_position() RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
    bound BIGINT := feed_bound();
BEGIN
    RETURN coalesce((SELECT position FROM events WHERE position <= bound ORDER BY position DESC LIMIT 1), 0);
END $$;
