-- Jobs for PgQueuer, in its own format, written in the transaction that causes them. A job requests to poll a run. Its
-- key contains the epoch of the run, so there is at most one job until the run is claimed, and later events get a job of
-- their own whatever happened to the first.

-- Enqueue those of these runs that are due within a minute, have no owner and are not blocked; and all runs in `heard`,
-- which received an event and may not have to wait any longer. Later timers are left to the sweep, because PgQueuer scans
-- every job that is not due yet whenever it fetches one. Any worker may take a job, so runs with deps of their own get none:
-- they are returned as news for the process that has the deps.
CREATE OR REPLACE FUNCTION enqueue(woken TEXT[], heard TEXT[], now_ FLOAT8) RETURNS TEXT[] LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO pgqueuer (priority, entrypoint, payload, execute_after, dedupe_key, status)
    SELECT 0, 'run', convert_to(run_id, 'UTF8'), now() + make_interval(secs => greatest(wake_at - now_, 0)),
           concat(run_id, ':', epoch), 'queued'
    FROM runs AS due
    WHERE run_id = ANY(woken || heard) AND worker IS NULL AND outcome IS NULL AND wake_at <= now_ + 60
      AND deps_holder IS NULL
      AND (run_id = ANY(heard) OR NOT EXISTS (
          SELECT 1 FROM runs AS earlier
          WHERE earlier.session_id = due.session_id AND earlier.outcome IS NULL AND earlier.id < due.id))
      AND (run_id = ANY(heard) OR places IS NULL OR wake_at > now_
           OR run_id = ANY(next_of_agent(agent_id, places, now_)))
    ORDER BY id
    ON CONFLICT (dedupe_key) WHERE status IN ('queued', 'picked') AND dedupe_key IS NOT NULL
    DO UPDATE SET execute_after = least(pgqueuer.execute_after, excluded.execute_after);
    RETURN ARRAY(
        SELECT concat('["', run_id, '",', sequence, ',true]') FROM runs
        WHERE run_id = ANY(woken) AND deps_holder IS NOT NULL AND worker IS NULL AND outcome IS NULL AND wake_at <= now_);
END $$;

-- Delete the unfetched jobs of runs that were claimed; `claims` are the results of the claims. (A DELETE wakes all
-- workers even if it deletes nothing.)
CREATE OR REPLACE FUNCTION take_back(claims JSONB[]) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    keys TEXT[] := ARRAY(SELECT concat(claim->'origin'->>0, ':', (claim->'epoch')::INTEGER - 1)
                         FROM unnest(claims) AS claim WHERE claim ? 'epoch');
BEGIN
    IF EXISTS (SELECT 1 FROM pgqueuer WHERE dedupe_key = ANY(keys) AND status = 'queued') THEN
        DELETE FROM pgqueuer WHERE dedupe_key = ANY(keys) AND status = 'queued';
    END IF;
END $$;
