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
INSERT INTO usage (day, agent, token, model, runs, model_calls, input_tokens, output_tokens, cache_read_tokens,
                   cache_write_tokens, tool_calls, cost, credits, unpriced_calls) VALUES

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
SELECT agent, token, model, day, runs, model_calls, input_tokens, output_tokens, cache_read_tokens,
       cache_write_tokens, tool_calls, cost, credits, unpriced_calls
FROM usage
WHERE (?1 IS NULL OR agent IN (SELECT value FROM json_each(?1)))
  AND (?2 IS NULL OR day >= ?2) AND (?3 IS NULL OR day <= ?3)
ORDER BY day, agent, token, model;

-- name: agent_state
SELECT state FROM agents WHERE name = ?;

-- name: set_agent_state
UPDATE agents SET state = ? WHERE name = ? RETURNING name;
