-- name: account
SELECT coalesce((SELECT cost FROM accounts WHERE account = ?1), 0.0),
       coalesce((SELECT credits FROM accounts WHERE account = ?1), 0.0),
       coalesce(sum(tokens), 0), coalesce(sum(cost), 0.0), coalesce(sum(credits), 0.0)
FROM reservations WHERE account = ?1;

-- name: window
SELECT bucket, amount FROM windows WHERE account = ? AND kind = ? AND bucket >= ? ORDER BY bucket;

-- name: use_window
INSERT INTO windows (account, kind, bucket, amount) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET amount = amount + excluded.amount;

-- name: forget_window
DELETE FROM windows WHERE account = ? AND kind = ? AND bucket < ?;

-- name: insert_reservation
INSERT INTO reservations (account, run, step, attempt, tokens, cost, credits) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: settle_money
INSERT INTO accounts (account, cost, credits)
SELECT account, sum(coalesce(?2, cost)), sum(coalesce(?3, credits)) FROM reservations WHERE run = ?1
GROUP BY account
ON CONFLICT DO UPDATE SET cost = cost + excluded.cost, credits = credits + excluded.credits;

-- name: settle_tokens
INSERT INTO windows (account, kind, bucket, amount)
SELECT account, 'tokens', ?2, sum(coalesce(?3, tokens)) FROM reservations WHERE run = ?1 AND tokens > 0
GROUP BY account
ON CONFLICT DO UPDATE SET amount = amount + excluded.amount;

-- name: forget_tokens
DELETE FROM windows
WHERE kind = 'tokens' AND bucket < ?2 AND account IN (SELECT account FROM reservations WHERE run = ?1);

-- name: settled
DELETE FROM reservations WHERE run = ?;

-- name: warned
SELECT ceiling, at FROM warnings WHERE account = ? AND kind = ?;

-- name: warn
INSERT OR REPLACE INTO warnings (account, kind, ceiling, at) VALUES (?, ?, ?, ?);

-- name: count_usage
INSERT INTO usage (day, agent, token, model, owner, tags, runs, model_calls, input_tokens, output_tokens,
                   cache_read_tokens, cache_write_tokens, tool_calls, cost, credits, unpriced_calls) VALUES

-- name: add_usage
ON CONFLICT DO UPDATE SET
    runs = runs + excluded.runs,
    model_calls = model_calls + excluded.model_calls,
    input_tokens = input_tokens + excluded.input_tokens,
    output_tokens = output_tokens + excluded.output_tokens,
    cache_read_tokens = cache_read_tokens + excluded.cache_read_tokens,
    cache_write_tokens = cache_write_tokens + excluded.cache_write_tokens,
    tool_calls = tool_calls + excluded.tool_calls,
    cost = cost + excluded.cost,
    credits = credits + excluded.credits,
    unpriced_calls = unpriced_calls + excluded.unpriced_calls

-- name: counted_up_to
UPDATE runs SET counted = ? WHERE id = ?;

-- name: usage
SELECT agent, token, model, day, iif(?4 = 'user', owner, '') AS of_owner, iif(?4 = 'tag', tags, '[]') AS with_tags,
       sum(runs), sum(model_calls), sum(input_tokens), sum(output_tokens), sum(cache_read_tokens),
       sum(cache_write_tokens), sum(tool_calls), sum(cost), sum(credits), sum(unpriced_calls)
FROM usage
WHERE (?1 IS NULL OR agent IN (SELECT value FROM json_each(?1)))
  AND (?2 IS NULL OR day >= ?2) AND (?3 IS NULL OR day <= ?3)
  AND (?5 IS NULL OR owner IN (SELECT value FROM json_each(?5))) AND (?7 IS NULL OR token = ?7)
  AND NOT EXISTS (SELECT 1 FROM json_each(?6) AS wanted WHERE wanted.value NOT IN (SELECT value FROM json_each(tags)))
GROUP BY day, agent, token, model, of_owner, with_tags
ORDER BY day, agent, token, model, of_owner, with_tags;

-- name: agent_state
SELECT state FROM agents WHERE name = ?;

-- name: set_agent_state
UPDATE agents SET state = ? WHERE name = ? RETURNING name;
