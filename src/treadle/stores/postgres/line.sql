-- name: places
SELECT run_id, sequence FROM runs WHERE run_id = ANY($1::TEXT[]);

-- name: tell
SELECT pg_notify($1, part) FROM unnest($2::TEXT[]) AS part;

-- name: still_there
SELECT 1;

-- name: is_there
SELECT to_regclass('treadle.schema_versions') IS NOT NULL;

-- name: may_make_schema
SELECT has_database_privilege(current_database(), 'CREATE')
    OR coalesce(has_schema_privilege(to_regnamespace('treadle')::OID, 'CREATE'), false);
