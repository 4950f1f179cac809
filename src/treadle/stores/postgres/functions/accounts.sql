-- Reservations, settlements and usage counts, written in the transaction of an append.

-- Replace the reservation of a model call that ended with its usage. NULL stands for the whole reservation.
CREATE OR REPLACE FUNCTION settle(run_ BIGINT, tokens_ BIGINT, cost_ FLOAT8, credits_ FLOAT8, now_ FLOAT8)
RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM reservations WHERE run = run_) THEN
        RETURN;
    END IF;
    INSERT INTO accounts (account, cost, credits)
    SELECT account, sum(coalesce(cost_, cost)), sum(coalesce(credits_, credits)) FROM reservations WHERE run = run_
    GROUP BY account
    ON CONFLICT (account) DO UPDATE
    SET cost = accounts.cost + excluded.cost, credits = accounts.credits + excluded.credits;
    IF tokens_ IS DISTINCT FROM 0 THEN
        INSERT INTO windows (account, kind, bucket, amount)
        SELECT account, 'tokens', floor(now_ / 60), sum(coalesce(tokens_, tokens)) FROM reservations
        WHERE run = run_ AND tokens > 0
        GROUP BY account
        ON CONFLICT (account, kind, bucket) DO UPDATE SET amount = windows.amount + excluded.amount;
        DELETE FROM windows
        WHERE kind = 'tokens' AND bucket < floor((now_ - 3600) / 60)
          AND account IN (SELECT account FROM reservations WHERE run = run_);
    END IF;
    DELETE FROM reservations WHERE run = run_;
END $$;

-- Return the usage of an account within a window, as buckets with amounts.
CREATE OR REPLACE FUNCTION in_window(account_ TEXT, kind_ TEXT, oldest BIGINT, OUT used FLOAT8, OUT buckets JSONB)
LANGUAGE sql STABLE AS $$
    SELECT coalesce(sum(amount), 0)::FLOAT8,
           coalesce(jsonb_agg(jsonb_build_array(bucket, amount) ORDER BY bucket), '[]')
    FROM windows WHERE account = account_ AND kind = kind_ AND bucket >= oldest
$$;

-- Return the standing of the accounts for each ceiling that the request counts against, in order.
CREATE OR REPLACE FUNCTION standing(wanted JSONB, now_ FLOAT8)
RETURNS TABLE (account TEXT, kind TEXT, ceiling FLOAT8, used FLOAT8, reserved FLOAT8, wants FLOAT8, buckets JSONB)
LANGUAGE plpgsql AS $$
DECLARE
    bound JSONB;
    paid  accounts;
    held  RECORD;
    total JSONB;
BEGIN
    FOR bound IN SELECT value FROM jsonb_array_elements(wanted->'accounts') LOOP
        account := bound->>'account';
        IF (wanted->'tokens')::BIGINT > 0 THEN
            SELECT * INTO paid FROM accounts WHERE accounts.account = bound->>'account';
            SELECT coalesce(sum(r.tokens), 0) AS tokens, coalesce(sum(r.cost), 0) AS cost,
                   coalesce(sum(r.credits), 0) AS credits
            INTO held FROM reservations AS r WHERE r.account = bound->>'account';
            IF bound->>'tokens' IS NOT NULL THEN
                kind := 'tokens'; ceiling := bound->'tokens'; reserved := held.tokens; wants := wanted->'tokens';
                SELECT w.used, w.buckets INTO used, buckets
                FROM in_window(account, 'tokens', floor((now_ - 3600) / 60)::BIGINT) AS w;
                RETURN NEXT;
            END IF;
            buckets := NULL;
            IF bound->>'credits' IS NOT NULL THEN
                kind := 'credits'; ceiling := bound->'credits'; used := coalesce(paid.credits, 0);
                reserved := held.credits; wants := wanted->'credits';
                RETURN NEXT;
            END IF;
            IF bound->>'cost' IS NOT NULL THEN
                kind := 'cost'; ceiling := bound->'cost'; used := coalesce(paid.cost, 0);
                reserved := held.cost; wants := wanted->'cost';
                RETURN NEXT;
            END IF;
        END IF;
        reserved := 0;
        IF (wanted->'calls')::BIGINT > 0 AND bound->>'calls' IS NOT NULL THEN
            kind := 'calls'; ceiling := bound->'calls'; wants := wanted->'calls';
            SELECT w.used, w.buckets INTO used, buckets
            FROM in_window(account, 'calls', floor(now_ - 60)::BIGINT) AS w;
            RETURN NEXT;
        END IF;
        buckets := NULL;
        FOREACH kind IN ARRAY ARRAY['steps', 'runs'] LOOP
            IF (wanted->kind)::BIGINT > 0 AND bound->>kind IS NOT NULL THEN
                ceiling := bound->kind; wants := wanted->kind;
                used := (in_window(account, kind, 0)).used;
                RETURN NEXT;
            END IF;
        END LOOP;
    END LOOP;
END $$;

-- Reserve the request in every account or in none. Return `refused`, the account that lacks the amount, or `near`, the
-- accounts that are close to a ceiling and were not warned yet.
CREATE OR REPLACE FUNCTION reserve(run_ BIGINT, wanted JSONB, now_ FLOAT8, OUT refused JSONB, OUT near JSONB)
LANGUAGE plpgsql AS $$
DECLARE
    bound JSONB;
    name  TEXT;
    found JSONB;
    each  RECORD;
    kind_ TEXT;
BEGIN
    SELECT coalesce(jsonb_agg(to_jsonb(s)), '[]') INTO found FROM standing(wanted, now_) AS s;
    SELECT value INTO refused
    FROM jsonb_array_elements(found) WITH ORDINALITY AS s (value, place),
         jsonb_to_record(value) AS v (used FLOAT8, reserved FLOAT8, wants FLOAT8, ceiling FLOAT8)
    WHERE used + reserved + wants > ceiling
    ORDER BY used + wants <= ceiling, place LIMIT 1;  -- first those that no settlement can free
    IF refused IS NOT NULL THEN
        RETURN;
    END IF;
    FOR each IN
        SELECT value, v.* FROM jsonb_array_elements(found) AS value,
               jsonb_to_record(value) AS v (account TEXT, kind TEXT, used FLOAT8, wants FLOAT8, ceiling FLOAT8)
        WHERE v.kind NOT IN ('steps', 'runs')  -- the run reports these if its agent is configured to
    LOOP
        IF is_news(each.account, each.kind, each.ceiling, now_,
                   each.used + CASE each.kind WHEN 'calls' THEN each.wants ELSE 0 END) THEN
            near := coalesce(near, '[]') || jsonb_build_array(each.value);
        END IF;
    END LOOP;
    FOR bound IN SELECT value FROM jsonb_array_elements(wanted->'accounts') LOOP
        name := bound->>'account';
        IF (wanted->'calls')::BIGINT > 0 AND bound->>'calls' IS NOT NULL THEN
            PERFORM use_window(name, 'calls', floor(now_)::BIGINT, (wanted->'calls')::BIGINT);
            DELETE FROM windows WHERE account = name AND kind = 'calls' AND bucket < floor(now_ - 60);
        END IF;
        FOREACH kind_ IN ARRAY ARRAY['steps', 'runs'] LOOP
            IF (wanted->kind_)::BIGINT > 0 AND bound->>kind_ IS NOT NULL THEN
                PERFORM use_window(name, kind_, 0, (wanted->kind_)::BIGINT);
            END IF;
        END LOOP;
        IF (wanted->'tokens')::BIGINT > 0 THEN
            INSERT INTO reservations (account, run, step, attempt, tokens, cost, credits)
            VALUES (name, run_, (wanted->'step')::INTEGER, (wanted->'attempt')::INTEGER,
                    CASE WHEN bound->>'tokens' IS NULL THEN 0 ELSE (wanted->'tokens')::BIGINT END,
                    (wanted->'cost')::FLOAT8, (wanted->'credits')::FLOAT8);
        END IF;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION use_window(account_ TEXT, kind_ TEXT, bucket_ BIGINT, amount_ BIGINT)
RETURNS VOID LANGUAGE sql AS $$
    INSERT INTO windows (account, kind, bucket, amount) VALUES (account_, kind_, bucket_, amount_)
    ON CONFLICT (account, kind, bucket) DO UPDATE SET amount = windows.amount + excluded.amount
$$;

-- Return whether an account is close to a ceiling and was not warned in this window or about this ceiling. Records the
-- warning.
CREATE OR REPLACE FUNCTION is_news(account_ TEXT, kind_ TEXT, ceiling_ FLOAT8, now_ FLOAT8, used_ FLOAT8)
RETURNS BOOLEAN LANGUAGE plpgsql AS $$
DECLARE
    told    warnings;
    window_ FLOAT8 := CASE kind_ WHEN 'tokens' THEN 3600 WHEN 'calls' THEN 60 ELSE 'infinity'::FLOAT8 END;
BEGIN
    IF used_ < ceiling_ * 0.8 THEN
        RETURN FALSE;
    END IF;
    SELECT * INTO told FROM warnings WHERE account = account_ AND kind = kind_;
    IF told.ceiling = ceiling_ AND now_ - told.at < window_ THEN
        RETURN FALSE;
    END IF;
    INSERT INTO warnings (account, kind, ceiling, at) VALUES (account_, kind_, ceiling_, now_)
    ON CONFLICT (account, kind) DO UPDATE SET ceiling = excluded.ceiling, at = excluded.at;
    RETURN TRUE;
END $$;

-- Add rows to the usage lists.
CREATE OR REPLACE FUNCTION count_usage(rows_ JSONB) RETURNS VOID LANGUAGE sql AS $$
    INSERT INTO usage AS known (day, agent, token, model, owner, tags, runs, model_calls, input_tokens, output_tokens,
                                cache_read_tokens, cache_write_tokens, tool_calls, cost, credits, unpriced_calls)
    SELECT (v->>0)::INTEGER, v->>1, v->>2, v->>3, v->>4, v->>5, sum((v->>6)::BIGINT), sum((v->>7)::BIGINT),
           sum((v->>8)::BIGINT), sum((v->>9)::BIGINT), sum((v->>10)::BIGINT), sum((v->>11)::BIGINT),
           sum((v->>12)::BIGINT), sum((v->>13)::FLOAT8), sum((v->>14)::FLOAT8), sum((v->>15)::BIGINT)
    FROM jsonb_array_elements(rows_) AS v GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6
    ON CONFLICT (day, agent, token, model, owner, tags) DO UPDATE SET
        runs = known.runs + excluded.runs,
        model_calls = known.model_calls + excluded.model_calls,
        input_tokens = known.input_tokens + excluded.input_tokens,
        output_tokens = known.output_tokens + excluded.output_tokens,
        cache_read_tokens = known.cache_read_tokens + excluded.cache_read_tokens,
        cache_write_tokens = known.cache_write_tokens + excluded.cache_write_tokens,
        tool_calls = known.tool_calls + excluded.tool_calls,
        cost = known.cost + excluded.cost,
        credits = known.credits + excluded.credits,
        unpriced_calls = known.unpriced_calls + excluded.unpriced_calls
$$;
