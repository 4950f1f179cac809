-- Jobs for PgQueuer, written as it does itself, in the transaction of what they are for. A job says: look at this run.
-- Its key has the epoch of the run, so there is one at most until the run is claimed, and what happens after that has
-- one of its own, whatever has become of the first by then.

-- Have those of these runs looked at that are due within a minute, are nobody's, and have nothing in their way; and
-- those in `heard`, which were told something, in any case: it may be that they need not wait. A timer that is farther
-- away is left to the sweep: PgQueuer goes past every job that is not due yet whenever it takes one.
CREATE OR REPLACE FUNCTION enqueue(woken TEXT[], heard TEXT[], now_ FLOAT8) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO pgqueuer (priority, entrypoint, payload, execute_after, dedupe_key, status)
    SELECT 0, 'run', convert_to(run_id, 'UTF8'), now() + make_interval(secs => greatest(wake_at - now_, 0)),
           concat(run_id, ':', epoch), 'queued'
    FROM runs AS due
    WHERE run_id = ANY(woken || heard) AND worker IS NULL AND outcome IS NULL AND wake_at <= now_ + 60
      AND (run_id = ANY(heard) OR NOT EXISTS (
          SELECT 1 FROM runs AS earlier
          WHERE earlier.session_id = due.session_id AND earlier.outcome IS NULL AND earlier.id < due.id))
      AND (run_id = ANY(heard) OR places IS NULL OR wake_at > now_
           OR run_id = ANY(next_of_agent(agent_id, places, now_)))
    ORDER BY id
    ON CONFLICT (dedupe_key) WHERE status IN ('queued', 'picked') AND dedupe_key IS NOT NULL
    DO UPDATE SET execute_after = least(pgqueuer.execute_after, excluded.execute_after);
END $$;

-- Take back the jobs of runs that were claimed, where nobody has taken them yet: `claims` are the answers to those who
-- claimed. Whoever looks first need not look again. (A DELETE wakes all workers, also one that deletes nothing.)
CREATE OR REPLACE FUNCTION take_back(claims JSONB[]) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    keys TEXT[] := ARRAY(SELECT concat(claim->'origin'->>0, ':', (claim->'epoch')::INTEGER - 1)
                         FROM unnest(claims) AS claim WHERE claim ? 'epoch');
BEGIN
    IF EXISTS (SELECT 1 FROM pgqueuer WHERE dedupe_key = ANY(keys) AND status = 'queued') THEN
        DELETE FROM pgqueuer WHERE dedupe_key = ANY(keys) AND status = 'queued';
    END IF;
END $$;
