-- name: standing
SELECT account, kind, ceiling, used, reserved, wants, buckets
FROM standing($1, coalesce($2, extract(epoch FROM clock_timestamp())));

-- name: balance
SELECT coalesce((SELECT cost FROM accounts WHERE account = $1), 0),
       coalesce((SELECT credits FROM accounts WHERE account = $1), 0),
       (in_window($1, 'tokens', floor((coalesce($2, extract(epoch FROM clock_timestamp())) - 3600) / 60)::BIGINT)).used,
       coalesce(sum(cost), 0), coalesce(sum(credits), 0), coalesce(sum(tokens), 0)::BIGINT
FROM reservations WHERE account = $1;

-- name: usage
SELECT agent, token, model, day, runs, model_calls, input_tokens, output_tokens, cache_read_tokens,
       cache_write_tokens, tool_calls, cost, credits, unpriced_calls
FROM usage
WHERE ($1::TEXT[] IS NULL OR agent = ANY($1)) AND ($2::INTEGER IS NULL OR day >= $2)
  AND ($3::INTEGER IS NULL OR day <= $3)
ORDER BY day, agent, token, model;

-- name: agent_state
SELECT state FROM agents WHERE name = $1;

-- name: set_agent_state
UPDATE agents SET state = $2 WHERE name = $1 RETURNING name;
