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
SELECT agent, token, model, day, CASE $4::TEXT WHEN 'user' THEN owner ELSE '' END AS of_owner,
       CASE $4::TEXT WHEN 'tag' THEN tags ELSE '[]' END AS with_tags,
       sum(runs)::BIGINT, sum(model_calls)::BIGINT, sum(input_tokens)::BIGINT, sum(output_tokens)::BIGINT,
       sum(cache_read_tokens)::BIGINT, sum(cache_write_tokens)::BIGINT, sum(tool_calls)::BIGINT, sum(cost), sum(credits),
       sum(unpriced_calls)::BIGINT
FROM usage
WHERE ($1::TEXT[] IS NULL OR agent = ANY($1)) AND ($2::INTEGER IS NULL OR day >= $2)
  AND ($3::INTEGER IS NULL OR day <= $3) AND ($5::TEXT[] IS NULL OR owner = ANY($5))
  AND ($6::TEXT[] = '{}' OR jsonb_exists_all(tags::JSONB, $6)) AND ($7::TEXT IS NULL OR token = $7)
GROUP BY day, agent, token, model, of_owner, with_tags
ORDER BY day, agent, token, model, of_owner, with_tags;

-- name: agent_state
SELECT state FROM agents WHERE name = $1;

-- name: set_agent_state
UPDATE agents SET state = $2 WHERE name = $1 RETURNING name;
