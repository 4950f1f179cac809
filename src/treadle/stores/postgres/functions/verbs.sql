-- The verbs of the journal, each part of one transaction. Each returns its result as JSON, and which run its events belong
-- to, from which sequence on, and how many there are.
-- Return why a run does not exist: it is unknown, or it was deleted.
CREATE OR REPLACE FUNCTION gone(run_id_ TEXT) RETURNS JSONB LANGUAGE sql STABLE AS $$
    SELECT coalesce(
        (SELECT jsonb_build_object('gone', jsonb_build_array(session_id, deleted_at, deleted_by))
         FROM deleted_runs JOIN deleted_sessions USING (session_id) WHERE run_id = run_id_),
        '{"gone": [null, null, null]}')
$$;

-- Return whether a session was deleted and so cannot be used again.
CREATE OR REPLACE FUNCTION buried(session_ids JSONB) RETURNS JSONB LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('buried', jsonb_build_array(session_id, deleted_at, deleted_by))
    FROM deleted_sessions WHERE session_id = ANY(ARRAY(SELECT jsonb_array_elements_text(session_ids))) LIMIT 1
$$;

-- Return whether one of the sessions for new runs belongs to another owner.
CREATE OR REPLACE FUNCTION taken_session(begun JSONB) RETURNS JSONB LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('taken', op->>'session')
    FROM jsonb_array_elements(begun) AS op
    WHERE coalesce(op->>'owner', 'local') <> (
        SELECT owner FROM runs WHERE session_id = op->>'session' ORDER BY id LIMIT 1)
    LIMIT 1
$$;

-- Return whether a session has a later run than the one that a new run follows.
CREATE OR REPLACE FUNCTION continued_session(op JSONB) RETURNS JSONB LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('continued', op->>'session')
    WHERE op->>'follows' <> (
        SELECT run_id FROM runs WHERE session_id = op->>'session' ORDER BY id DESC LIMIT 1)
$$;

CREATE OR REPLACE FUNCTION submit_one(
    op JSONB, now_ FLOAT8, OUT answer JSONB, OUT run BIGINT, OUT first INTEGER, OUT events INTEGER
) LANGUAGE plpgsql AS $$
BEGIN
    IF op->>'key' IS NOT NULL THEN
        SELECT jsonb_build_object('existing', run_id) INTO answer FROM runs WHERE submission_key = op->>'key';
        IF answer IS NOT NULL THEN
            RETURN;
        END IF;
    END IF;
    answer := buried(jsonb_build_array(op->'session'));
    IF answer IS NOT NULL THEN
        RETURN;
    END IF;
    answer := taken_session(jsonb_build_array(op));
    IF answer IS NOT NULL THEN
        RETURN;
    END IF;
    IF op ? 'follows' THEN
        answer := continued_session(op);
        IF answer IS NOT NULL THEN
            RETURN;
        END IF;
    END IF;
    INSERT INTO runs (run_id, session_id, agent_id, parent_run_id, submission_key, created_at, status, wake_at, sequence,
                      places, owner, workspace, folder, deps_holder, session_mode)
    VALUES (op->>'run', op->>'session', op->>'agent', op->>'parent', op->>'key', now_, 'pending', 0,
            (op->'events')::INTEGER, (op->>'places')::INTEGER, coalesce(op->>'owner', 'local'),
            coalesce(op->>'workspace', ''), coalesce(op->>'folder', ''), op->>'deps_holder',
            op->>'mode')
    RETURNING id INTO run;
    answer := '{}'; first := 1; events := op->'events';
    IF op ? 'beside' THEN
        PERFORM project(run, op->>'session', op->'beside', now_);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION deliver_one(
    op JSONB, now_ FLOAT8, OUT answer JSONB, OUT run BIGINT, OUT first INTEGER, OUT events INTEGER
) LANGUAGE plpgsql AS $$
DECLARE
    found runs;
    known INTEGER;
BEGIN
    SELECT * INTO found FROM runs WHERE run_id = op->>'run' FOR NO KEY UPDATE;
    IF found.id IS NULL THEN
        answer := gone(op->>'run');
        RETURN;
    END IF;
    answer := jsonb_build_object('origin', jsonb_build_array(
        found.run_id, found.session_id, found.agent_id, found.parent_run_id));
    SELECT sequence INTO known FROM deliveries WHERE deliveries.run = found.id AND key = op->>'key';
    IF known IS NOT NULL OR found.outcome IS NOT NULL THEN
        answer := answer || jsonb_build_object('sequence', known);
        RETURN;
    END IF;
    IF op ? 'seen' AND found.sequence > (op->'seen')::BIGINT THEN
        answer := jsonb_build_object('fenced', found.epoch);
        RETURN;
    END IF;
    IF op ? 'approval' AND NOT EXISTS (
        SELECT 1 FROM approvals JOIN runs ON runs.id = approvals.run
        WHERE approval_id = op->>'approval' AND decision IS NULL AND outcome IS NULL
          AND (expires_at IS NULL OR expires_at > now_)
    ) THEN
        answer := '{"closed": true}';
        RETURN;
    END IF;
    run := found.id; first := found.sequence + 1; events := 1;
    UPDATE runs SET sequence = first, wake_at = 0 WHERE id = found.id;
    INSERT INTO deliveries (run, key, sequence) VALUES (found.id, op->>'key', first);
    IF op ? 'beside' THEN
        PERFORM project(run, found.session_id, op->'beside', now_);
    END IF;
    answer := answer || jsonb_build_object('sequence', first, 'new', TRUE);
END $$;

-- Release the run, ended or not, and return which run to poll next.
CREATE OR REPLACE FUNCTION let_go(INOUT found runs, release JSONB, said_ BYTEA, now_ FLOAT8, OUT woken JSONB)
LANGUAGE plpgsql AS $$
DECLARE
    following runs;
BEGIN
    found.worker := NULL; found.lease_until := NULL;
    IF release->>'outcome' IS NULL THEN
        found.status := CASE WHEN release->>'waiting_for' IS NULL THEN found.status ELSE 'waiting' END;
        found.waiting_for := coalesce(release->>'waiting_for', found.waiting_for);
        found.wake_at := (release->>'wake_at')::FLOAT8;
        woken := CASE WHEN found.wake_at IS NOT NULL THEN jsonb_build_array(found.run_id, found.wake_at) END;
        RETURN;
    END IF;
    found.status := release->>'status'; found.outcome := release->>'outcome';
    found.waiting_for := NULL; found.wake_at := NULL;
    INSERT INTO said (session_id, run, messages, whole)
    VALUES (found.session_id, found.id, said_, (release->'whole')::BOOLEAN);
    SELECT * INTO following FROM runs
    WHERE session_id = found.session_id AND outcome IS NULL AND id > found.id ORDER BY id LIMIT 1;
    IF following.id IS NOT NULL THEN
        UPDATE runs SET wake_at = 0 WHERE id = following.id;
        woken := jsonb_build_array(following.run_id, NULL);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION advance_one(
    op JSONB, said_ BYTEA, now_ FLOAT8, OUT answer JSONB, OUT run BIGINT, OUT first INTEGER, OUT events INTEGER
) LANGUAGE plpgsql AS $$
DECLARE
    found    runs;
    facts    INTEGER := op->'facts';
    intents  INTEGER := op->'intents';
    accepted BOOLEAN;
    given    RECORD;
    extra    JSONB;
    refused_ JSONB;
    near_    JSONB;
    following TEXT[];
BEGIN
    SELECT * INTO found FROM runs WHERE run_id = op->>'run' FOR NO KEY UPDATE;
    IF found.id IS NULL THEN
        answer := gone(op->>'run');
        RETURN;
    END IF;
    IF found.epoch <> (op->'epoch')::INTEGER OR found.outcome IS NOT NULL OR found.worker IS NULL THEN
        answer := jsonb_build_object('fenced', found.epoch);
        RETURN;
    END IF;
    IF op ? 'key' AND found.sequence > (op->'seen')::BIGINT THEN
        answer := jsonb_build_object('fenced', found.epoch);
        RETURN;
    END IF;
    IF op ? 'begin' THEN
        answer := coalesce(
            buried((SELECT jsonb_agg(value->'session') FROM jsonb_array_elements(op->'begin'))), taken_session(op->'begin'));
        IF answer IS NOT NULL THEN
            RETURN;
        END IF;
    END IF;
    accepted := found.sequence <= (op->'seen')::BIGINT;
    run := found.id; first := found.sequence + 1;
    IF op ? 'key' THEN  -- the first fact was delivered to the owner itself
        INSERT INTO deliveries (run, key, sequence) VALUES (found.id, op->>'key', first);
    END IF;
    IF op ? 'beside_facts' THEN  -- settles before the new reservation
        PERFORM project(run, found.session_id, op->'beside_facts', now_);
    END IF;
    IF accepted AND op ? 'reserve' THEN
        SELECT r.refused, r.near INTO refused_, near_ FROM reserve(run, op->'reserve', now_) AS r;
        accepted := refused_ IS NULL;
    END IF;
    events := facts;
    IF accepted THEN
        events := facts + intents;
        IF op ? 'beside' THEN
            PERFORM project(run, found.session_id, op->'beside', now_);
        END IF;
        IF op ? 'usage' THEN
            found.counted := found.sequence + events;
        END IF;
        IF op ? 'release' THEN
            given := let_go(found, op->'release', said_, now_);
            found := given.found; extra := given.woken;
        ELSIF intents > 0 AND found.status <> 'running' THEN
            found.status := 'running'; found.waiting_for := NULL;
        END IF;
    END IF;
    answer := jsonb_build_object('accepted', accepted, 'sequence', found.sequence + events, 'before', found.sequence);
    IF coalesce(extra, refused_, near_) IS NOT NULL THEN
        answer := answer || jsonb_strip_nulls(jsonb_build_object('refused', refused_, 'near', near_))
                  || jsonb_build_object('woken', extra);
    END IF;
    IF op ? 'whose' THEN
        answer := answer || jsonb_build_object('origin', jsonb_build_array(
            found.run_id, found.session_id, found.agent_id, found.parent_run_id));
    END IF;
    UPDATE runs
    SET sequence = found.sequence + events, status = found.status, outcome = found.outcome, worker = found.worker,
        waiting_for = found.waiting_for, lease_until = found.lease_until, wake_at = found.wake_at,
        counted = found.counted
    WHERE id = found.id;
    IF accepted AND op ? 'release' AND found.places IS NOT NULL THEN
        following := next_of_agent(found.agent_id, found.places, now_);
        IF following <> '{}' THEN
            answer := answer || jsonb_build_object('following', following);
        END IF;
    END IF;
END $$;

-- Return the events of a run that has just started, so that the claiming worker need not read them; null if they are large
-- or if this batch writes some of them.
CREATE OR REPLACE FUNCTION opening(run_ BIGINT, sequence_ INTEGER) RETURNS JSONB LANGUAGE sql STABLE AS $$
    SELECT jsonb_agg(jsonb_build_array(sequence, event_id, timestamp, type, version, encode(data, 'hex')) ORDER BY sequence)
    FROM events WHERE run = run_ HAVING count(*) = sequence_ AND sum(length(data)) <= 8192
$$;

CREATE OR REPLACE FUNCTION claim_one(op JSONB, now_ FLOAT8, cancelled BIGINT[]) RETURNS JSONB LANGUAGE plpgsql AS $$
DECLARE
    found     runs;
    earlier   TEXT;
    taken     BIGINT;
BEGIN
    SELECT * INTO found FROM runs WHERE run_id = op->>'run' FOR NO KEY UPDATE;
    IF found.id IS NULL THEN
        RETURN gone(op->>'run');
    ELSIF found.outcome IS NOT NULL THEN
        RETURN '{"not_claimable": "has ended"}';
    ELSIF found.worker IS NOT NULL AND found.lease_until > now_ THEN
        RETURN jsonb_build_object('not_claimable', 'is owned by ' || found.worker);
    ELSIF found.deps_holder IS NOT NULL
          AND is_held_elsewhere(found.deps_holder, op->>'worker', op ? 'makes_deps', now_) THEN
        RETURN '{"not_claimable": "has deps of its own, which another process provides"}';
    END IF;
    SELECT run_id INTO earlier FROM runs
    WHERE session_id = found.session_id AND outcome IS NULL AND id < found.id ORDER BY id LIMIT 1;
    IF found.places IS NOT NULL THEN
        taken := places_taken(found);
    END IF;
    IF (earlier IS NOT NULL OR taken >= found.places) AND (found.id = ANY(cancelled) OR EXISTS (
        SELECT 1 FROM events WHERE run = found.id AND type = 'cancel_requested')) THEN  -- claimed only to end it
        taken := 0;
        earlier := CASE WHEN found.status <> 'pending' THEN earlier END;
    END IF;
    IF taken >= found.places THEN
        RETURN jsonb_build_object('no_place', taken);
    ELSIF earlier IS NOT NULL THEN
        RETURN jsonb_build_object('not_claimable', 'waits for ' || earlier || ', which is before it in its session');
    END IF;
    PERFORM settle(found.id, NULL, NULL, NULL, now_);
    UPDATE runs
    SET epoch = found.epoch + 1, worker = op->>'worker', lease_until = now_ + (op->'lease')::FLOAT8,
        status = CASE status WHEN 'pending' THEN 'running' ELSE status END,
        lost_worker = coalesce(found.worker, lost_worker),
        deps_holder = CASE WHEN deps_holder IS NOT NULL AND op ? 'makes_deps' THEN op->>'worker' ELSE deps_holder END
    WHERE id = found.id;
    RETURN jsonb_build_object(
        'origin', jsonb_build_array(found.run_id, found.session_id, found.agent_id, found.parent_run_id),
        'epoch', found.epoch + 1, 'lost', found.worker, 'counted', found.counted,
        'id', found.id, 'last', (SELECT max(run) FROM said WHERE session_id = found.session_id AND run < found.id),
        'opening', CASE WHEN found.sequence <= 4 THEN opening(found.id, found.sequence) END);
END $$;
