-- name: take_turn
SELECT pg_try_advisory_lock(hashtextextended($1, 3));
