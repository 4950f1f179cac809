-- Permanent deletion of sessions, in one transaction.

-- Return a session before it is deleted; no rows if it does not exist.
CREATE OR REPLACE FUNCTION deletable(session_id_ TEXT)
RETURNS TABLE (session_id TEXT, agent_id TEXT, runs INTEGER, unfinished INTEGER, events BIGINT, first_at FLOAT8,
               latest_at FLOAT8) LANGUAGE sql STABLE AS $$
    SELECT r.session_id, (array_agg(r.agent_id ORDER BY r.id))[1], count(*)::INTEGER,
           count(*) FILTER (WHERE r.outcome IS NULL)::INTEGER, sum(r.sequence)::BIGINT, min(r.created_at),
           max(coalesce(e.timestamp, r.created_at))
    FROM runs AS r LEFT JOIN events AS e ON e.run = r.id AND e.sequence = r.sequence
    WHERE r.session_id = session_id_ GROUP BY r.session_id
$$;

-- Return the session, and the sessions that were started only by runs of its family, in the order in which they are found.
CREATE OR REPLACE FUNCTION family_of(session_id_ TEXT) RETURNS TEXT[] LANGUAGE plpgsql STABLE AS $$
DECLARE
    family TEXT[] := ARRAY[session_id_];
    at_    INTEGER := 1;
    child_ TEXT;
BEGIN
    WHILE at_ <= cardinality(family) LOOP
        FOR child_ IN
            SELECT child.session_id FROM runs AS parent JOIN runs AS child ON child.parent_run_id = parent.run_id
            WHERE parent.session_id = family[at_] GROUP BY child.session_id ORDER BY min(child.id)
        LOOP
            IF child_ <> ALL(family) AND NOT EXISTS (
                SELECT 1 FROM runs AS child LEFT JOIN runs AS parent ON child.parent_run_id = parent.run_id
                WHERE child.session_id = child_
                  AND (parent.session_id IS NULL OR parent.session_id <> ALL(family || child_))
            ) THEN
                family := family || child_;
            END IF;
        END LOOP;
        at_ := at_ + 1;
    END LOOP;
    RETURN family;
END $$;

-- Block adding, claiming and ending runs of these sessions until the end of this transaction.
CREATE OR REPLACE FUNCTION lock_sessions(session_ids TEXT[]) RETURNS VOID LANGUAGE sql AS $$
    SELECT pg_advisory_xact_lock(wanted.lock) FROM (
        SELECT DISTINCT hashtextextended(session_id, 0) AS lock FROM unnest(session_ids) AS session_id ORDER BY lock
    ) AS wanted
$$;

-- Delete everything that belongs to a session, and leave a tombstone.
CREATE OR REPLACE FUNCTION delete_one(session_id_ TEXT, now_ FLOAT8, by_ TEXT, deletion_ TEXT)
RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    found     RECORD;
    numbers   BIGINT[] := ARRAY(SELECT id FROM runs WHERE session_id = session_id_);
    run_ids   TEXT[] := ARRAY(SELECT run_id FROM runs WHERE session_id = session_id_);
    trees     TEXT[] := ARRAY(SELECT 'tree/' || run_id FROM unnest(run_ids) AS run_id);
    memories_ INTEGER;
BEGIN
    SELECT * INTO found FROM deletable(session_id_);
    DELETE FROM memories WHERE session_id = session_id_ OR run_id = ANY(run_ids);
    GET DIAGNOSTICS memories_ = ROW_COUNT;
    DELETE FROM requests
    WHERE body IS NOT NULL AND (position(convert_to(session_id_, 'UTF8') IN body) > 0 OR EXISTS (
        SELECT 1 FROM unnest(run_ids) AS run_id WHERE position(convert_to(run_id, 'UTF8') IN body) > 0));
    DELETE FROM events WHERE run = ANY(numbers);
    DELETE FROM deliveries WHERE run = ANY(numbers);
    DELETE FROM approvals WHERE run = ANY(numbers);
    DELETE FROM said WHERE session_id = session_id_;
    DELETE FROM run_summaries WHERE run = ANY(numbers);
    DELETE FROM run_labels WHERE run = ANY(numbers);
    DELETE FROM feedback WHERE run = ANY(numbers);
    DELETE FROM results WHERE session_id = session_id_;
    DELETE FROM segments WHERE session_id = session_id_;
    DELETE FROM grants WHERE session_id = session_id_;
    DELETE FROM session_notes WHERE session_id = session_id_;
    DELETE FROM reservations WHERE run = ANY(numbers);
    DELETE FROM accounts WHERE account = ANY(trees);
    DELETE FROM windows WHERE account = ANY(trees);
    DELETE FROM warnings WHERE account = ANY(trees);
    DELETE FROM dead_letters WHERE run_id = ANY(run_ids);
    UPDATE channel_inbox SET state = 'done', content = '{"message_id":"","conversation":"","sender":""}', run_id = NULL
    WHERE run_id = ANY(run_ids);
    DELETE FROM channel_outbox WHERE run_id = ANY(run_ids);
    DELETE FROM channel_conversations WHERE session_id = session_id_;
    INSERT INTO deleted_runs (run_id, session_id) SELECT run_id, session_id_ FROM unnest(run_ids) AS run_id
    ON CONFLICT DO NOTHING;
    DELETE FROM runs WHERE id = ANY(numbers);
    INSERT INTO deleted_sessions (session_id, agent_id, runs, events, memories, first_at, latest_at, deleted_at,
                                  deleted_by, deletion)
    VALUES (session_id_, found.agent_id, found.runs, found.events, memories_, found.first_at, found.latest_at, now_, by_,
            deletion_);
END $$;

-- Delete a session and its family. Return what prevents it: the id of a run that has not ended, or that there is no such
-- session; null if this deletion did it. A family that has grown since it was locked is read again.
CREATE OR REPLACE FUNCTION delete_session(
    session_id_ TEXT, now_ FLOAT8, by_ TEXT, deletion_ TEXT, OUT unknown BOOLEAN, OUT unfinished TEXT, OUT where_ TEXT
) LANGUAGE plpgsql AS $$
DECLARE
    family TEXT[];
    locked TEXT[] := family_of(session_id_);
    member TEXT;
BEGIN
    PERFORM lock_sessions(locked);
    IF EXISTS (SELECT 1 FROM deleted_sessions WHERE deletion = deletion_) THEN
        RETURN;
    END IF;
    unknown := NOT EXISTS (SELECT 1 FROM runs WHERE session_id = session_id_);
    IF unknown THEN
        RETURN;
    END IF;
    family := family_of(session_id_);
    IF NOT family <@ locked THEN
        RAISE EXCEPTION 'the session % has grown meanwhile', session_id_ USING ERRCODE = '40001';
    END IF;
    SELECT run_id, session_id INTO unfinished, where_ FROM runs
    WHERE session_id = ANY(family) AND outcome IS NULL ORDER BY array_position(family, session_id), id LIMIT 1;
    IF unfinished IS NULL THEN
        FOREACH member IN ARRAY family LOOP
            PERFORM delete_one(member, now_, by_, deletion_);
        END LOOP;
    END IF;
END $$;

-- Delete those of these sessions that are idle and have had no events since then.
CREATE OR REPLACE FUNCTION prune_sessions(
    session_ids TEXT[], before_ FLOAT8, now_ FLOAT8, by_ TEXT, deletion_ TEXT
) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    member TEXT;
BEGIN
    PERFORM lock_sessions(session_ids);
    FOREACH member IN ARRAY session_ids LOOP
        IF EXISTS (SELECT 1 FROM deletable(member) AS d WHERE d.unfinished = 0 AND d.latest_at < before_) THEN
            PERFORM delete_one(member, now_, by_, deletion_);
        END IF;
    END LOOP;
END $$;
