-- The list of sessions, the latest first.

-- Return the latest run of each matching session. A page reads no more runs than it lists sessions, and what lies
-- between.
CREATE OR REPLACE FUNCTION latest_runs_of_sessions(
    before_ TEXT, agents_ TEXT[], limit_ INTEGER, owner_ TEXT, children_ BOOLEAN, workspaces_ TEXT[])
RETURNS SETOF BIGINT LANGUAGE plpgsql STABLE SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    batch  CONSTANT INTEGER := 200;
    bound  BIGINT := (SELECT max(id) FROM runs WHERE session_id = before_ AND (owner_ IS NULL OR owner = owner_));
    latest RECORD;
    first_ RECORD;
    seen   INTEGER;
    taken  INTEGER := 0;
BEGIN
    IF before_ IS NOT NULL AND bound IS NULL THEN
        RETURN;
    END IF;
    LOOP
        seen := 0;
        FOR latest IN
            SELECT id, session_id FROM runs
            WHERE (bound IS NULL OR id < bound) AND (owner_ IS NULL OR owner = owner_)
              AND (workspaces_ IS NULL OR workspace = ANY(workspaces_))
            ORDER BY id DESC LIMIT batch
        LOOP
            bound := latest.id;
            seen := seen + 1;
            CONTINUE WHEN EXISTS (SELECT 1 FROM runs WHERE session_id = latest.session_id AND id > latest.id);
            SELECT name, parent_run_id INTO first_ FROM runs LEFT JOIN agents USING (agent_id)
            WHERE session_id = latest.session_id ORDER BY id LIMIT 1;
            CONTINUE WHEN agents_ IS NOT NULL AND (first_.name = ANY(agents_)) IS NOT TRUE;
            CONTINUE WHEN NOT children_ AND first_.parent_run_id IS NOT NULL;
            RETURN NEXT latest.id;
            taken := taken + 1;
            IF taken = limit_ THEN
                RETURN;
            END IF;
        END LOOP;
        EXIT WHEN seen < batch;
    END LOOP;
END $$;
