-- Return whether a worker must leave a run with deps of its own to another process: to the one that has them as long as it
-- is alive, then to one that makes them, if there is one.
CREATE OR REPLACE FUNCTION is_held_elsewhere(holder TEXT, worker_ TEXT, makes_ BOOLEAN, now_ FLOAT8) RETURNS BOOLEAN
LANGUAGE sql STABLE AS $$
    SELECT holder <> worker_ AND EXISTS (
        SELECT 1 FROM deps_holders WHERE until > now_ AND (worker = holder OR (makes AND NOT makes_)))
$$;
