-- Write the projections of a run's events, so that lists need not read journals. Dispatches on `as`.
CREATE OR REPLACE FUNCTION project(run_ BIGINT, session_id_ TEXT, beside JSONB, now_ FLOAT8)
RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    each JSONB;
BEGIN
    FOR each IN SELECT value FROM jsonb_array_elements(beside) LOOP
        CASE each->>'as'
        WHEN 'settled' THEN
            PERFORM settle(run_, (each->>'tokens')::BIGINT, (each->>'cost')::FLOAT8, (each->>'credits')::FLOAT8, now_);
        WHEN 'requested' THEN
            INSERT INTO approvals (approval_id, run, call_id, tool, arguments, reason, pattern, requested_at, expires_at)
            VALUES (each->>'approval_id', run_, each->>'call_id', each->>'tool', each->>'arguments', each->>'reason',
                    each->>'pattern', (each->>'at')::FLOAT8, (each->>'expires_at')::FLOAT8);
        WHEN 'decided' THEN
            UPDATE approvals SET decision = each->>'decision'
            WHERE approval_id = each->>'approval_id' AND decision IS NULL;
            IF (each->>'remember')::BOOLEAN THEN
                INSERT INTO grants (session_id, workspace, tool, pattern, run)
                SELECT runs.session_id, runs.workspace, tool, pattern, run FROM approvals JOIN runs ON runs.id = run
                WHERE approval_id = each->>'approval_id' AND pattern IS NOT NULL
                ON CONFLICT DO NOTHING;
            END IF;
        WHEN 'segment' THEN
            INSERT INTO segments (segment_id, session_id, parent, run, reason, messages, opened_at)
            VALUES (each->>'segment_id', session_id_, each->>'parent', run_, each->>'reason',
                    (each->>'messages')::INTEGER, (each->>'at')::FLOAT8);
            DELETE FROM session_notes WHERE session_id = session_id_;
        WHEN 'notes' THEN
            INSERT INTO session_notes (session_id, workspace, notes)
            VALUES (session_id_, each->>'workspace', each->>'notes')
            ON CONFLICT (session_id) DO UPDATE SET workspace = excluded.workspace, notes = excluded.notes;
        WHEN 'labels' THEN
            INSERT INTO run_summaries (run, labels) VALUES (run_, each->>'labels');
            INSERT INTO run_labels (key, value, run, owner)
            SELECT pair->>0, pair->>1, run_, each->>'owner' FROM jsonb_array_elements(each->'pairs') AS pair;
        WHEN 'opening' THEN
            INSERT INTO run_summaries (run, message) VALUES (run_, each->>'message')
            ON CONFLICT (run) DO UPDATE SET message = excluded.message;
        WHEN 'ended' THEN
            INSERT INTO run_summaries (run, cost, tokens, steps, duration_ms, facts)
            VALUES (run_, (each->>'cost')::FLOAT8, (each->>'tokens')::BIGINT, (each->>'steps')::INTEGER,
                    (each->>'duration_ms')::BIGINT, each->>'facts')
            ON CONFLICT (run) DO UPDATE SET cost = excluded.cost, tokens = excluded.tokens, steps = excluded.steps,
                                            duration_ms = excluded.duration_ms, facts = excluded.facts;
        WHEN 'progress' THEN
            INSERT INTO run_summaries AS known (run, cost, tokens, steps, facts)
            VALUES (run_, (each->>'cost')::FLOAT8, (each->>'tokens')::BIGINT, (each->>'steps')::INTEGER, each->>'facts')
            ON CONFLICT (run) DO UPDATE SET cost = coalesce(known.cost, 0) + excluded.cost,
                                            tokens = coalesce(known.tokens, 0) + excluded.tokens,
                                            steps = greatest(known.steps, excluded.steps), facts = excluded.facts;
        WHEN 'memory' THEN
            PERFORM remember(run_, each);
        WHEN 'recalled' THEN
            PERFORM recalled(each->'memories', (each->>'at')::FLOAT8);
        WHEN 'forked' THEN  -- a fork shares the title and the model, and the whole text of truncated results can be recalled in it too
            UPDATE runs SET (title, session_model) =
                (SELECT first.title, first.session_model FROM runs AS old JOIN runs AS first USING (session_id)
                 WHERE old.run_id = each->>'run' ORDER BY first.id LIMIT 1)
            WHERE id = run_;
            INSERT INTO results (session_id, run, call_id, content)
            SELECT DISTINCT ON (kept.call_id) session_id_, run_, kept.call_id, kept.content
            FROM runs AS old JOIN results AS kept ON kept.session_id = old.session_id AND kept.run <= old.id
            WHERE old.run_id = each->>'run' ORDER BY kept.call_id, kept.id DESC
            ON CONFLICT (session_id, call_id, run) DO UPDATE SET content = excluded.content;
        END CASE;
    END LOOP;
END $$;

-- Return what an order of runs compares. Runs without a value are last.
CREATE OR REPLACE FUNCTION sorted_value(summary run_summaries, order_ TEXT) RETURNS FLOAT8 LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(CASE order_
        WHEN 'cost' THEN summary.cost
        WHEN 'tokens' THEN summary.tokens
        WHEN 'steps' THEN summary.steps
        WHEN 'duration' THEN summary.duration_ms
        WHEN 'score' THEN (nullif(summary.facts, '')::JSONB->>'score')::FLOAT8
    END, -1)
$$;
