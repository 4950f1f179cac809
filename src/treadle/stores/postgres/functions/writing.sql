-- One transaction for all that a process has ready.
--
-- Who waits for whom: the row of the writer, then sessions, agents and submission keys by their hash, then runs by their
-- number, then accounts by name. No two batches that keep to this order wait for each other.

-- Lock all that a batch will touch: `sessions` by name and those of the runs in `turns`, `agents` by their ids and those
-- of the runs in `turns` and `places`, where they have a number of places, submission `keys`, `runs` and, for those in
-- `ends`, whoever comes next in their sessions.
CREATE OR REPLACE FUNCTION lock_runs(locks JSONB) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    turns   TEXT[] := ARRAY(SELECT jsonb_array_elements_text(locks->'turns'));
    placed  TEXT[] := turns || ARRAY(SELECT jsonb_array_elements_text(locks->'places'));
    touched BIGINT[];
BEGIN
    PERFORM pg_advisory_xact_lock(wanted.lock) FROM (
        SELECT hashtextextended(session_id, 0) AS lock FROM jsonb_array_elements_text(locks->'sessions') AS session_id
        UNION SELECT hashtextextended(session_id, 0) FROM runs WHERE run_id = ANY(turns)
        UNION SELECT hashtextextended(agent_id, 3) FROM jsonb_array_elements_text(locks->'agents') AS agent_id
        UNION SELECT hashtextextended(agent_id, 3) FROM runs WHERE run_id = ANY(placed) AND places IS NOT NULL
        UNION SELECT hashtextextended(key, 2) FROM jsonb_array_elements_text(locks->'keys') AS key
        ORDER BY lock
    ) AS wanted;
    touched := ARRAY(
        SELECT id FROM runs WHERE run_id = ANY(ARRAY(SELECT jsonb_array_elements_text(locks->'runs')))
        UNION
        SELECT (SELECT later.id FROM runs AS later
                WHERE later.session_id = ending.session_id AND later.outcome IS NULL AND later.id > ending.id
                ORDER BY later.id LIMIT 1)
        FROM runs AS ending WHERE ending.run_id = ANY(ARRAY(SELECT jsonb_array_elements_text(locks->'ends')))
    );
    PERFORM 1 FROM runs WHERE id = ANY(touched) ORDER BY id FOR NO KEY UPDATE;
END $$;

-- Lock the accounts that are reserved from, and those that the runs in `settling` have something reserved from.
CREATE OR REPLACE FUNCTION lock_accounts(locks JSONB) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(wanted.lock) FROM (
        SELECT hashtextextended(account, 1) AS lock FROM (
            SELECT jsonb_array_elements_text(locks->'accounts') AS account
            UNION
            SELECT reservations.account FROM reservations JOIN runs ON runs.id = reservations.run
            WHERE runs.run_id = ANY(ARRAY(SELECT jsonb_array_elements_text(locks->'settling')))
        ) AS named ORDER BY account
    ) AS wanted;
END $$;

-- A run to which something was added: its id, its last sequence, and whether that was delivered.
CREATE OR REPLACE FUNCTION note(op JSONB, sequence_ INTEGER) RETURNS TEXT LANGUAGE sql STABLE AS $$
    SELECT concat('[', op->'run', ',', sequence_, CASE op->>'do' WHEN 'deliver' THEN ',true]' ELSE ',false]' END)
$$;

-- Tell every process that listens on the channel `treadle`, once this is committed: who has written, and the notes of
-- the runs that it has written to. One message takes at most 8000 bytes.
CREATE OR REPLACE FUNCTION tell_all(writer_ TEXT, news TEXT[]) RETURNS VOID LANGUAGE sql AS $$
    SELECT pg_notify('treadle', '{"by":"' || writer_ || '","runs":[' || string_agg(note, ',') || ']}')
    FROM (SELECT note, (row_number() OVER () - 1) / 60 AS part FROM unnest(news) AS note) AS parts GROUP BY part
$$;

-- What was answered to a batch of which nobody knows whether it was done. NULL: it was not; and its number is taken now,
-- so that it cannot be done any more, wherever it is on its way. Whoever is at it just now is waited for.
CREATE OR REPLACE FUNCTION look_back(writer_ TEXT, batch_ BIGINT) RETURNS TEXT LANGUAGE plpgsql AS $$
DECLARE
    known writers;
BEGIN
    SELECT * INTO known FROM writers WHERE writer = writer_ FOR NO KEY UPDATE;
    IF known.batch = batch_ THEN
        RETURN nullif(known.answers, '');
    ELSIF known.batch <> batch_ - 1 THEN
        RAISE EXCEPTION 'batch % of % is the last one here, not %', known.batch, writer_, batch_
            USING ERRCODE = 'TR002';
    END IF;
    UPDATE writers SET batch = batch_, answers = '' WHERE writer = writer_;
    RETURN NULL;
END $$;

-- Do all of this in one transaction, each by itself: one that is refused leaves nothing. `ops` are the verbs, `ids` and
-- what follows their events in order, `said_` what runs that end have said. A batch that comes twice is answered as it
-- was.
CREATE OR REPLACE FUNCTION write_all(
    writer_ TEXT, batch_ BIGINT, ops JSONB, locks JSONB, ids TEXT[], stamps FLOAT8[], types TEXT[], datas BYTEA[],
    said_ BYTEA[], version_ INTEGER, now_ FLOAT8
) RETURNS TEXT LANGUAGE plpgsql AS $$
DECLARE
    known   writers;
    moment  FLOAT8 := coalesce(now_, extract(epoch FROM clock_timestamp()));
    op      JSONB;
    part    JSONB;
    done    RECORD;
    begun   RECORD;
    at_     INTEGER := 0;
    told    JSONB;
    answers TEXT[] := '{}';
    runs_   BIGINT[] := array_fill(NULL::BIGINT, ARRAY[cardinality(ids)]);
    places  INTEGER[] := array_fill(NULL::INTEGER, ARRAY[cardinality(ids)]);
    usage_  JSONB := '[]';
    news    TEXT[] := '{}';
    woken   TEXT[] := '{}';
    heard   TEXT[] := '{}';
    claims  JSONB[] := '{}';
    all_    TEXT;
BEGIN
    SELECT * INTO known FROM writers WHERE writer = writer_ FOR NO KEY UPDATE;
    IF known.batch = batch_ THEN
        RETURN known.answers;
    ELSIF known.batch IS NULL THEN
        RAISE EXCEPTION 'there is no writer %', writer_ USING ERRCODE = 'TR001';
    ELSIF known.batch <> batch_ - 1 THEN
        RAISE EXCEPTION 'batch % of % is the last one here, not %', known.batch, writer_, batch_ - 1
            USING ERRCODE = 'TR002';
    END IF;
    IF locks ? 'runs' THEN
        PERFORM lock_runs(locks);
    END IF;
    IF locks ? 'accounts' THEN
        PERFORM lock_accounts(locks);
    END IF;
    FOR number IN 0 .. jsonb_array_length(ops) - 1 LOOP
        op := ops->number; told := NULL;
        CASE op->>'do'
        WHEN 'advance' THEN
            done := advance_one(op, said_[(op->'said')::INTEGER], moment);
        WHEN 'submit' THEN
            done := submit_one(op, moment);
        WHEN 'deliver' THEN
            done := deliver_one(op, moment);
        WHEN 'claim' THEN
            claims := claims || claim_one(op, moment, ARRAY(
                SELECT run FROM unnest(runs_, types) AS e (run, type) WHERE run IS NOT NULL AND type = 'cancel_requested'
            ));
            answers := answers || claims[cardinality(claims)]::TEXT;
            CONTINUE;
        END CASE;
        FOR i IN 1 .. coalesce(done.events, 0) LOOP
            runs_[at_ + i] := done.run;
            places[at_ + i] := done.first + i - 1;
        END LOOP;
        IF done.events > 0 THEN
            news := news || note(op, done.first + done.events - 1);
            CASE op->>'do'
            WHEN 'submit' THEN woken := woken || (op->>'run');
            WHEN 'deliver' THEN heard := heard || (op->>'run');
            ELSE NULL;
            END CASE;
        END IF;
        IF done.answer ? 'woken' THEN
            woken := woken || (done.answer->'woken'->>0);
        END IF;
        IF done.answer ? 'following' THEN
            woken := woken || ARRAY(SELECT jsonb_array_elements_text(done.answer->'following'));
        END IF;
        at_ := at_ + (op->'events')::INTEGER;
        IF (done.answer->'accepted')::BOOLEAN AND op ? 'usage' THEN
            usage_ := usage_ || (op->'usage');
        END IF;
        IF op ? 'begin' OR op ? 'tell' THEN
            FOR part IN SELECT value FROM jsonb_array_elements(coalesce(op->'begin', '[]') || coalesce(op->'tell', '[]'))
            LOOP
                IF (done.answer->'accepted')::BOOLEAN THEN
                    IF part->>'do' = 'submit' THEN
                        begun := submit_one(part, moment);
                        woken := woken || (part->>'run');
                    ELSE
                        begun := deliver_one(part, moment);
                        heard := heard || (part->>'run');
                        told := coalesce(told, '[]') || jsonb_build_array(begun.answer);
                    END IF;
                    FOR i IN 1 .. coalesce(begun.events, 0) LOOP
                        runs_[at_ + i] := begun.run;
                        places[at_ + i] := begun.first + i - 1;
                    END LOOP;
                    IF begun.events > 0 THEN
                        news := news || note(part, begun.first + begun.events - 1);
                    END IF;
                END IF;
                at_ := at_ + (part->'events')::INTEGER;
            END LOOP;
        END IF;
        answers := answers || (CASE WHEN told IS NULL THEN done.answer
                                    ELSE done.answer || jsonb_build_object('told', told) END)::TEXT;
    END LOOP;
    IF at_ > 0 THEN
        PERFORM hold_feed();
        INSERT INTO events (run, sequence, event_id, timestamp, type, version, data)
        SELECT run, place, id, stamp, type, version_, data
        FROM unnest(runs_, places, ids, stamps, types, datas) AS e (run, place, id, stamp, type, data)
        WHERE run IS NOT NULL;
    END IF;
    IF usage_ <> '[]' THEN
        PERFORM count_usage(usage_);
    END IF;
    IF claims <> '{}' THEN
        PERFORM take_back(claims);
    END IF;
    IF woken <> '{}' OR heard <> '{}' THEN
        PERFORM enqueue(woken, heard, moment);
    END IF;
    PERFORM tell_all(writer_, news);
    all_ := '[' || array_to_string(answers, ',') || ']';
    UPDATE writers SET batch = batch_, answers = all_, at = moment WHERE writer = writer_;
    RETURN all_;
END $$;
