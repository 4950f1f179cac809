-- What takes other parameters now.
DROP FUNCTION IF EXISTS lock_runs(JSONB);
DROP FUNCTION IF EXISTS write_all(
    TEXT, BIGINT, JSONB, JSONB, TEXT[], FLOAT8[], TEXT[], BYTEA[], BYTEA[], INTEGER, FLOAT8);
