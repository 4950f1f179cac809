-- Group commit: one transaction for all operations that a process has ready.
--
-- Lock order: the row of the writer; sessions, agents and submission keys by their hash; runs by their number; accounts by
-- name. Batches that follow this order cannot deadlock.

-- Lock everything that a batch touches: `sessions` by name and those of the runs in `turns`; `agents` by id and those of
-- the runs in `turns` and `places`, if they have a concurrency limit; submission `keys`; `runs` and, for those in `ends`,
-- the next run of their sessions; and the runs with these numbers. All of `turns`, `places` and `ends` is also in `runs`.
CREATE OR REPLACE FUNCTION lock_runs(locks JSONB, numbers BIGINT[]) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    wanted RECORD;
    found  RECORD;
BEGIN
    SELECT * INTO wanted FROM jsonb_to_record(locks) AS w (
        sessions TEXT[], turns TEXT[], agents TEXT[], places TEXT[], keys TEXT[], runs TEXT[], ends TEXT[]);
    SELECT array_agg(id) AS numbers,
           array_agg(hashtextextended(session_id, 0)) FILTER (WHERE run_id = ANY(wanted.turns)) AS sessions,
           array_agg(hashtextextended(agent_id, 3)) FILTER (
               WHERE places IS NOT NULL AND run_id = ANY(wanted.turns || wanted.places)) AS agents,
           array_agg(id) FILTER (WHERE run_id = ANY(wanted.ends)) AS ends
    INTO found FROM runs WHERE run_id = ANY(wanted.runs);
    PERFORM pg_advisory_xact_lock(each.lock) FROM (
        SELECT lock FROM unnest(found.sessions || found.agents) AS lock
        UNION SELECT hashtextextended(session_id, 0) FROM unnest(wanted.sessions) AS session_id
        UNION SELECT hashtextextended(agent_id, 3) FROM unnest(wanted.agents) AS agent_id
        UNION SELECT hashtextextended(key, 2) FROM unnest(wanted.keys) AS key
        ORDER BY lock
    ) AS each;
    IF found.ends IS NOT NULL THEN
        found.numbers := found.numbers || ARRAY(
            SELECT (SELECT later.id FROM runs AS later
                    WHERE later.session_id = ending.session_id AND later.outcome IS NULL AND later.id > ending.id
                    ORDER BY later.id LIMIT 1)
            FROM runs AS ending WHERE ending.id = ANY(found.ends));
    END IF;
    PERFORM 1 FROM runs WHERE id = ANY(numbers || found.numbers) ORDER BY id FOR NO KEY UPDATE;
END $$;

-- Lock the accounts of new reservations, and those in which the runs in `settling` hold reservations.
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

-- A run with new events: its id, its last sequence, whether the event was delivered by someone other than its owner, and
-- whether the owner has released the run because it lacks something that the run needs.
CREATE OR REPLACE FUNCTION note(op JSONB, sequence_ INTEGER) RETURNS TEXT LANGUAGE sql STABLE AS $$
    SELECT concat('[', op->'run', ',', sequence_, CASE op->>'do' WHEN 'deliver' THEN ',true' ELSE ',false' END,
                  CASE op->'release'->>'waiting_for' WHEN 'unavailable' THEN ',true]' ELSE ']' END)
$$;

-- Notify every process that listens on the channel `treadle`, after the commit, of the writer and the runs it wrote to. A
-- payload has at most 8000 bytes.
CREATE OR REPLACE FUNCTION tell_all(writer_ TEXT, news TEXT[]) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    FOR at_ IN 1 .. cardinality(news) BY 60 LOOP
        PERFORM pg_notify('treadle', concat(
            '{"by":"', writer_, '","runs":[', array_to_string(news[at_:at_ + 59], ','), ']}'));
    END LOOP;
END $$;

-- Return the results of a batch whose outcome is unknown. NULL: it was not applied, and its number is now taken, so that it
-- can never be applied even if it is still on its way. Waits for a batch that is being applied.
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

-- Apply advances that only append events, each of another run, in the order of their numbers: those whose caller still
-- owns the run and has seen all of it are applied at once. `moved` says which. (A join would be planned in any order, and
-- a CASE keeps the planner from reading an index of all owned or unfinished runs.)
CREATE OR REPLACE FUNCTION advance_many(
    numbers BIGINT[], epochs INTEGER[], seen INTEGER[], facts INTEGER[], intents INTEGER[],
    OUT moved BIGINT[], OUT news TEXT[]
) LANGUAGE plpgsql AS $$
BEGIN
    WITH done AS (
        UPDATE runs
        SET sequence = sequence + facts[array_position(numbers, id)] + intents[array_position(numbers, id)]
        WHERE id = ANY(numbers) AND CASE WHEN outcome IS NULL AND worker IS NOT NULL
            THEN epoch = epochs[array_position(numbers, id)] AND sequence = seen[array_position(numbers, id)]
                 AND (status = 'running' OR intents[array_position(numbers, id)] = 0)
            ELSE FALSE END
        RETURNING id, run_id, sequence
    )
    SELECT coalesce(array_agg(id), '{}'), coalesce(array_agg(concat('["', run_id, '",', sequence, ',false]')), '{}')
    INTO moved, news FROM done;
END $$;

-- Apply a batch in one transaction; a rejected operation leaves no changes. `numbers` and the arrays next to it are
-- advances that only append events, `ops` the other verbs; `ids` and the arrays next to it are their events in that order,
-- `owners` and `places` the runs and sequences of the former's events, and `said_` the messages of runs that end. A batch
-- that arrives twice gets the same results.
CREATE OR REPLACE FUNCTION write_all(
    writer_ TEXT, batch_ BIGINT, run_ids TEXT[], numbers BIGINT[], epochs INTEGER[], seen INTEGER[], facts INTEGER[],
    intents INTEGER[], ops JSONB, locks JSONB, ids TEXT[], stamps FLOAT8[], types TEXT[], datas BYTEA[],
    owners BIGINT[], places INTEGER[], said_ BYTEA[], version_ INTEGER, now_ FLOAT8
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
    usage_  JSONB := '[]';
    plain   INTEGER := cardinality(numbers);
    answers TEXT[] := array_fill('true'::TEXT, ARRAY[plain]);
    next_   INTEGER := 1;
    events_ INTEGER;
    moved   BIGINT[] := '{}';
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
        PERFORM lock_runs(locks, numbers);
    END IF;
    IF locks ? 'accounts' THEN
        PERFORM lock_accounts(locks);
    END IF;
    IF numbers <> '{}' THEN
        SELECT m.moved, m.news INTO moved, news
        FROM advance_many(numbers, epochs, seen, facts, intents) AS m;
    END IF;
    IF cardinality(moved) = plain THEN
        at_ := cardinality(owners); next_ := plain + 1;
    END IF;
    IF cardinality(owners) < cardinality(ids) THEN
        owners := owners || array_fill(NULL::BIGINT, ARRAY[cardinality(ids) - cardinality(owners)]);
        places := places || array_fill(NULL::INTEGER, ARRAY[cardinality(ids) - cardinality(places)]);
    END IF;
    FOR number IN next_ .. plain + jsonb_array_length(ops) LOOP
        told := NULL;
        IF number > plain THEN
            op := ops->(number - plain - 1);
        ELSE
            events_ := facts[number] + intents[number];
            IF numbers[number] = ANY(moved) THEN
                at_ := at_ + events_;
                CONTINUE;
            END IF;
            FOR i IN 1 .. events_ LOOP
                owners[at_ + i] := NULL;
            END LOOP;
            op := jsonb_build_object('do', 'advance', 'run', run_ids[number], 'epoch', epochs[number], 'seen', seen[number],
                                     'facts', facts[number], 'intents', intents[number], 'events', events_);
        END IF;
        CASE op->>'do'
        WHEN 'advance' THEN
            done := advance_one(op, said_[(op->'said')::INTEGER], moment);
        WHEN 'submit' THEN
            done := submit_one(op, moment);
        WHEN 'deliver' THEN
            done := deliver_one(op, moment);
        WHEN 'claim' THEN
            claims := claims || claim_one(op, moment, ARRAY(
                SELECT run FROM unnest(owners, types) AS e (run, type) WHERE run IS NOT NULL AND type = 'cancel_requested'
            ));
            answers[number] := claims[cardinality(claims)];
            CONTINUE;
        END CASE;
        FOR i IN 1 .. coalesce(done.events, 0) LOOP
            owners[at_ + i] := done.run;
            places[at_ + i] := done.first + i - 1;
        END LOOP;
        IF done.events > 0 OR (done.answer->'accepted')::BOOLEAN AND op->'release'->>'waiting_for' = 'unavailable' THEN
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
                        owners[at_ + i] := begun.run;
                        places[at_ + i] := begun.first + i - 1;
                    END LOOP;
                    IF begun.events > 0 THEN
                        news := news || note(part, begun.first + begun.events - 1);
                    END IF;
                END IF;
                at_ := at_ + (part->'events')::INTEGER;
            END LOOP;
        END IF;
        answers[number] := CASE WHEN told IS NULL THEN done.answer
                                ELSE done.answer || jsonb_build_object('told', told) END;
    END LOOP;
    IF at_ > 0 THEN
        PERFORM hold_feed();
        INSERT INTO events (run, sequence, event_id, timestamp, type, version, data)
        SELECT run, place, id, stamp, type, version_, data
        FROM (SELECT unnest(owners) AS run, unnest(places) AS place, unnest(ids) AS id, unnest(stamps) AS stamp,
                     unnest(types) AS type, unnest(datas) AS data) AS made  -- in FROM they would be materialized first
        WHERE run IS NOT NULL;
    END IF;
    IF usage_ <> '[]' THEN
        PERFORM count_usage(usage_);
    END IF;
    IF claims <> '{}' THEN
        PERFORM take_back(claims);
    END IF;
    IF woken <> '{}' OR heard <> '{}' THEN
        news := news || enqueue(woken, heard, moment);
    END IF;
    PERFORM tell_all(writer_, news);
    all_ := '[' || array_to_string(answers, ',') || ']';
    UPDATE writers SET batch = batch_, answers = all_, at = moment WHERE writer = writer_;
    RETURN all_;
END $$;
