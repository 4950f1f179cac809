-- name: verify_writable
UPDATE schema_versions SET functions = functions WHERE version = (SELECT max(version) FROM schema_versions);

-- name: write_all
SELECT write_all($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19);

-- name: look_back
SELECT look_back($1, $2);

-- name: register_writer
WITH old AS (DELETE FROM writers WHERE at < extract(epoch FROM clock_timestamp()) - 604800)
INSERT INTO writers (writer, batch, answers, at) VALUES ($1, $2, '[]', extract(epoch FROM clock_timestamp()))
ON CONFLICT (writer) DO NOTHING;

-- name: forget_writer
DELETE FROM writers WHERE writer = $1;

-- name: events_of_run
SELECT r.run_id, r.session_id, r.agent_id, r.parent_run_id, r.counted, r.id,
       e.sequence, e.event_id, e.timestamp, e.type, e.version, e.data
FROM runs AS r LEFT JOIN LATERAL (
    SELECT * FROM events WHERE run = r.id AND sequence > $2 ORDER BY sequence LIMIT $3
) AS e ON TRUE
WHERE r.run_id = $1 ORDER BY e.sequence;

-- name: grave_of_run
SELECT session_id, deleted_at, deleted_by FROM deleted_runs JOIN deleted_sessions USING (session_id) WHERE run_id = $1;

-- name: session_facts
SELECT n.workspace, notes, r.run_id, segment_id, parent, reason, messages, opened_at
FROM runs AS r LEFT JOIN session_notes AS n ON n.session_id = $1
     LEFT JOIN (SELECT * FROM segments WHERE session_id = $1 ORDER BY id DESC LIMIT 1) AS s ON TRUE
WHERE r.id = $2;

-- name: said_before
SELECT said.messages FROM runs LEFT JOIN said ON said.session_id = runs.session_id AND said.run < runs.id
     AND said.run >= coalesce((SELECT max(whole.run) FROM said AS whole
                               WHERE whole.session_id = runs.session_id AND whole.run < runs.id AND whole.whole), 0)
WHERE runs.run_id = $1 ORDER BY said.run;

-- name: renew
WITH ours AS (SELECT id FROM runs WHERE worker = $1 ORDER BY id FOR NO KEY UPDATE)
UPDATE runs SET lease_until = coalesce($2, extract(epoch FROM clock_timestamp())) + $3
FROM ours WHERE runs.id = ours.id RETURNING run_id;

-- name: hold_deps
WITH moment AS (SELECT coalesce($3::FLOAT8, extract(epoch FROM clock_timestamp())::FLOAT8) AS now),
     old AS (DELETE FROM deps_holders WHERE until < (SELECT now FROM moment) - 86400)
INSERT INTO deps_holders (worker, makes, until) SELECT $1, $2, now + $4 FROM moment
ON CONFLICT (worker) DO UPDATE SET until = excluded.until;

-- name: stop_holding_deps
DELETE FROM deps_holders WHERE worker = $1;

-- name: record
SELECT run_id, session_id, agent_id, parent_run_id, status, outcome, created_at, wake_at, waiting_for, sequence,
       coalesce(name, ''), owner, coalesce(message, ''), cost, tokens, steps, duration_ms,
       coalesce(labels, ''), coalesce(facts, '')
FROM runs LEFT JOIN agents USING (agent_id) LEFT JOIN run_summaries ON run = runs.id WHERE run_id = $1;

-- The planner knows how many runs an agent has, but not by its name.
-- name: find_runs
SELECT run_id, session_id, agent_id, parent_run_id, status, outcome, created_at, wake_at, waiting_for, sequence,
       coalesce(name, ''), runs.owner, coalesce(message, ''), cost, tokens, steps, duration_ms, coalesce(labels, ''), coalesce(facts, '')
FROM runs LEFT JOIN agents USING (agent_id) LEFT JOIN run_summaries ON run = runs.id
WHERE ($1::TEXT[] IS NULL OR agent_id = ANY($1))
  AND ($2::TEXT IS NULL OR session_id = $2) AND ($3::TEXT IS NULL OR parent_run_id = $3)
  AND ($4::TEXT IS NULL OR status = $4) AND ($5::TEXT IS NULL OR outcome = $5)
  AND ($6::TEXT IS NULL OR id < (
      SELECT id FROM runs WHERE run_id = $6 AND ($9::TEXT[] IS NULL OR owner = ANY($9))))
  AND (NOT $7::BOOLEAN OR outcome IS NULL) AND ($9::TEXT[] IS NULL OR owner = ANY($9))
  AND ($10::TEXT IS NULL OR run_id LIKE $10) AND ($11::DOUBLE PRECISION IS NULL OR created_at >= $11)
  AND ($12::DOUBLE PRECISION IS NULL OR created_at < $12)
  AND ($13::TEXT IS NULL OR position(lower($13) IN lower(message)) > 0)
  AND ($14::DOUBLE PRECISION IS NULL OR cost >= $14) AND (NOT $15::BOOLEAN OR outcome IS NOT NULL)
  AND ($16::BIGINT[] IS NULL OR id = ANY($16))
ORDER BY id DESC LIMIT $8;

-- name: find_runs_by_time
SELECT run_id, session_id, agent_id, parent_run_id, status, outcome, created_at, wake_at, waiting_for, sequence,
       coalesce(name, ''), runs.owner, coalesce(message, ''), cost, tokens, steps, duration_ms, coalesce(labels, ''), coalesce(facts, '')
FROM runs LEFT JOIN agents USING (agent_id) LEFT JOIN run_summaries ON run = runs.id
WHERE ($1::TEXT[] IS NULL OR agent_id = ANY($1))
  AND ($2::TEXT IS NULL OR session_id = $2) AND ($3::TEXT IS NULL OR parent_run_id = $3)
  AND ($4::TEXT IS NULL OR status = $4) AND ($5::TEXT IS NULL OR outcome = $5)
  AND ($6::TEXT IS NULL OR (created_at, id) < (
      SELECT created_at, id FROM runs WHERE run_id = $6 AND ($9::TEXT[] IS NULL OR owner = ANY($9))))
  AND (NOT $7::BOOLEAN OR outcome IS NULL) AND ($9::TEXT[] IS NULL OR owner = ANY($9))
  AND ($10::TEXT IS NULL OR run_id LIKE $10) AND ($11::DOUBLE PRECISION IS NULL OR created_at >= $11)
  AND ($12::DOUBLE PRECISION IS NULL OR created_at < $12)
  AND ($13::TEXT IS NULL OR position(lower($13) IN lower(message)) > 0)
  AND ($14::DOUBLE PRECISION IS NULL OR cost >= $14) AND (NOT $15::BOOLEAN OR outcome IS NOT NULL)
  AND ($16::BIGINT[] IS NULL OR id = ANY($16))
ORDER BY created_at DESC, id DESC LIMIT $8;

-- name: agent_ids
SELECT agent_id FROM agents WHERE name = ANY($1::TEXT[]);

-- name: runs_by_text
(SELECT run FROM said_parts JOIN events USING (position) WHERE parts @> $1::INTEGER[] LIMIT $2)
UNION ALL
(SELECT run FROM events WHERE position > (SELECT position FROM said_index)
   AND type IN ('user_message', 'message_steered', 'run_forked', 'run_end') LIMIT $2);

-- name: runs_by_cost
SELECT run FROM run_summaries WHERE cost >= $1 LIMIT $2;

-- name: find_labelled_runs
SELECT run_id, session_id, agent_id, parent_run_id, status, outcome, created_at, wake_at, waiting_for, sequence,
       coalesce(name, ''), runs.owner, coalesce(message, ''), cost, tokens, steps, duration_ms, coalesce(labels, ''), coalesce(facts, '')
FROM run_labels AS chosen JOIN runs ON runs.id = chosen.run
     LEFT JOIN agents USING (agent_id) LEFT JOIN run_summaries AS summary ON summary.run = runs.id
WHERE chosen.key = ($15::TEXT[])[1] AND chosen.value = ($16::TEXT[])[1]
  AND NOT EXISTS (SELECT 1 FROM unnest($15::TEXT[], $16::TEXT[]) AS wanted (key, value) WHERE NOT EXISTS (
      SELECT 1 FROM run_labels AS other
      WHERE other.key = wanted.key AND other.value = wanted.value AND other.run = chosen.run))
  AND ($1::TEXT[] IS NULL OR agent_id IN (SELECT agent_id FROM agents WHERE name = ANY($1)))
  AND ($2::TEXT IS NULL OR session_id = $2) AND ($3::TEXT IS NULL OR parent_run_id = $3)
  AND ($4::TEXT IS NULL OR status = $4) AND ($5::TEXT IS NULL OR outcome = $5)
  AND ($6::TEXT IS NULL OR chosen.run < (
      SELECT id FROM runs WHERE run_id = $6 AND ($9::TEXT[] IS NULL OR owner = ANY($9))))
  AND (NOT $7::BOOLEAN OR outcome IS NULL) AND ($9::TEXT[] IS NULL OR chosen.owner = ANY($9))
  AND ($10::TEXT IS NULL OR run_id LIKE $10) AND ($11::DOUBLE PRECISION IS NULL OR created_at >= $11)
  AND ($12::DOUBLE PRECISION IS NULL OR created_at < $12)
  AND ($13::TEXT IS NULL OR position(lower($13) IN lower(message)) > 0)
  AND ($14::DOUBLE PRECISION IS NULL OR cost >= $14)
ORDER BY chosen.run DESC LIMIT $8;

-- Sorted by one of their sums: `sorted_value` returns it.
-- name: find_sorted_runs
SELECT run_id, session_id, agent_id, parent_run_id, status, outcome, created_at, wake_at, waiting_for, sequence,
       coalesce(name, ''), runs.owner, coalesce(message, ''), cost, tokens, steps, duration_ms, coalesce(labels, ''),
       coalesce(facts, '')
FROM runs LEFT JOIN agents USING (agent_id) LEFT JOIN run_summaries AS summary ON summary.run = runs.id
WHERE ($1::TEXT[] IS NULL OR agent_id = ANY($1))
  AND ($2::TEXT IS NULL OR session_id = $2) AND ($3::TEXT IS NULL OR parent_run_id = $3)
  AND ($4::TEXT IS NULL OR status = $4) AND ($5::TEXT IS NULL OR outcome = $5)
  AND (NOT $6::BOOLEAN OR outcome IS NULL) AND ($7::TEXT[] IS NULL OR owner = ANY($7))
  AND ($8::TEXT IS NULL OR run_id LIKE $8) AND ($9::DOUBLE PRECISION IS NULL OR created_at >= $9)
  AND ($10::DOUBLE PRECISION IS NULL OR created_at < $10)
  AND ($11::TEXT IS NULL OR position(lower($11) IN lower(message)) > 0)
  AND ($12::DOUBLE PRECISION IS NULL OR cost >= $12) AND (NOT $13::BOOLEAN OR outcome IS NOT NULL)
  AND ($14::BIGINT[] IS NULL OR id = ANY($14))
  AND NOT EXISTS (SELECT 1 FROM unnest($15::TEXT[], $16::TEXT[]) AS wanted (key, value) WHERE NOT EXISTS (
      SELECT 1 FROM run_labels AS other
      WHERE other.key = wanted.key AND other.value = wanted.value AND other.run = runs.id))
  AND ($19::TEXT IS NULL OR (CASE WHEN $18::BOOLEAN THEN 1 ELSE -1 END * sorted_value(summary, $17), runs.id *
      CASE WHEN $18 THEN 1 ELSE -1 END) > (
      SELECT CASE WHEN $18 THEN 1 ELSE -1 END * sorted_value(other, $17), last.id * CASE WHEN $18 THEN 1 ELSE -1 END
      FROM runs AS last LEFT JOIN run_summaries AS other ON other.run = last.id
      WHERE last.run_id = $19 AND ($7::TEXT[] IS NULL OR last.owner = ANY($7))))
ORDER BY CASE WHEN $18 THEN 1 ELSE -1 END * sorted_value(summary, $17), CASE WHEN $18 THEN 1 ELSE -1 END * runs.id
LIMIT $20;

-- name: sum_runs
SELECT count(*), count(*) FILTER (WHERE status = 'failed'), coalesce(sum(cost), 0)::DOUBLE PRECISION,
       coalesce(sum(tokens), 0)::BIGINT
FROM runs LEFT JOIN run_summaries ON run = runs.id
WHERE ($1::TEXT[] IS NULL OR agent_id = ANY($1))
  AND ($2::TEXT IS NULL OR session_id = $2) AND ($3::TEXT IS NULL OR parent_run_id = $3)
  AND ($4::TEXT IS NULL OR status = $4) AND ($5::TEXT IS NULL OR outcome = $5)
  AND (NOT $6::BOOLEAN OR outcome IS NULL) AND ($7::TEXT[] IS NULL OR owner = ANY($7))
  AND ($8::TEXT IS NULL OR run_id LIKE $8) AND ($9::DOUBLE PRECISION IS NULL OR created_at >= $9)
  AND ($10::DOUBLE PRECISION IS NULL OR created_at < $10)
  AND ($11::TEXT IS NULL OR position(lower($11) IN lower(message)) > 0)
  AND ($12::DOUBLE PRECISION IS NULL OR cost >= $12) AND (NOT $13::BOOLEAN OR outcome IS NOT NULL)
  AND ($14::BIGINT[] IS NULL OR id = ANY($14))
  AND NOT EXISTS (SELECT 1 FROM unnest($15::TEXT[], $16::TEXT[]) AS wanted (key, value) WHERE NOT EXISTS (
      SELECT 1 FROM run_labels AS other
      WHERE other.key = wanted.key AND other.value = wanted.value AND other.run = runs.id));

-- name: unfinished
SELECT run_id, session_id, agent_id, parent_run_id, status, outcome, created_at, wake_at, waiting_for, sequence,
       coalesce(name, ''), owner, coalesce(message, ''), cost, tokens, steps, duration_ms,
       coalesce(labels, ''), coalesce(facts, '')
FROM runs LEFT JOIN agents USING (agent_id) LEFT JOIN run_summaries ON run = runs.id
WHERE outcome IS NULL AND ($1::TEXT IS NULL OR session_id = $1) ORDER BY id;

-- name: feed_position
SELECT feed_position();

-- name: feed
SELECT * FROM feed($1, $2, $3, $4);

-- name: submitted
SELECT run_id, 0 FROM runs WHERE submission_key = $1
UNION ALL
SELECT runs.run_id, deliveries.sequence FROM deliveries JOIN runs ON runs.id = deliveries.run WHERE deliveries.key = $1
LIMIT 1;

-- name: agent
WITH made AS (
    INSERT INTO agents (agent_id, name) VALUES ($2, $1) ON CONFLICT (name) DO NOTHING RETURNING agent_id
)
SELECT agent_id FROM made UNION ALL SELECT agent_id FROM agents WHERE name = $1 LIMIT 1;

-- name: record_death
WITH moment AS (SELECT coalesce($2::FLOAT8, extract(epoch FROM clock_timestamp())::FLOAT8) AS now),
     old AS (DELETE FROM deaths WHERE at <= (SELECT now FROM moment) - 100 * $3::FLOAT8),
     made AS (
         INSERT INTO deaths (worker, runs, at, run)
         SELECT $1, owned, now, CASE WHEN owned = 1 THEN $4::BIGINT END
         FROM moment, (SELECT count(*) AS owned FROM runs WHERE worker = $1 OR lost_worker = $1) AS of_worker
         ON CONFLICT (worker) DO UPDATE
         SET (runs, at, run) = (
             SELECT CASE WHEN is_recent THEN deaths.runs ELSE excluded.runs END,
                    CASE WHEN is_recent THEN deaths.at ELSE excluded.at END,
                    CASE WHEN is_recent THEN deaths.run ELSE excluded.run END
             FROM (SELECT deaths.at > excluded.at - $3::FLOAT8 AS is_recent) AS old)
         RETURNING runs
     )
SELECT runs, (
    SELECT 1 + count(*) FILTER (WHERE run IS NULL OR run = $4) + count(DISTINCT run) FILTER (WHERE run <> $4)
    FROM deaths, moment WHERE at > now - $3::FLOAT8 AND worker <> $1
) FROM made;

-- name: now
SELECT extract(epoch FROM clock_timestamp())::FLOAT8;

-- name: end_of_search
SELECT coalesce(max(position), 0) + 1 FROM events;

-- name: said_before_position
SELECT position FROM events
WHERE position < $1 AND position > $2 AND type IN ('user_message', 'message_steered', 'run_forked', 'run_end')
ORDER BY position DESC LIMIT 1 OFFSET $3;

-- name: search
SELECT position, run_id, session_id, runs.agent_id, parent_run_id, events.sequence, event_id, timestamp, type, version,
       data
FROM events JOIN runs ON runs.id = events.run
WHERE position < $1 AND position > $2 AND type IN ('user_message', 'message_steered', 'run_forked', 'run_end')
  AND convert_from(data, 'UTF8') ILIKE $3
  AND ($4::TEXT[] IS NULL OR agent_id IN (SELECT agent_id FROM agents WHERE name = ANY($4)))
  AND ($5::TEXT IS NULL OR owner = $5)
ORDER BY position DESC LIMIT $6;

-- name: candidates
SELECT position FROM said_parts WHERE parts @> $1::INTEGER[] AND position < $2 ORDER BY position DESC LIMIT $3;

-- name: said_at_positions
SELECT position, run_id, session_id, runs.agent_id, parent_run_id, events.sequence, event_id, timestamp, type, version,
       data
FROM events JOIN runs ON runs.id = events.run
WHERE position = ANY($1::BIGINT[])
  AND ($2::TEXT[] IS NULL OR agent_id IN (SELECT agent_id FROM agents WHERE name = ANY($2)))
  AND ($3::TEXT IS NULL OR owner = $3)
ORDER BY position DESC;

-- name: indexed_to
SELECT position FROM said_index;

-- name: said_after_index
SELECT position, type, version, data, owner FROM events JOIN runs ON runs.id = events.run
WHERE position > (SELECT position FROM said_index) AND position <= feed_bound()
  AND type IN ('user_message', 'message_steered', 'run_forked', 'run_end')
ORDER BY position LIMIT $1;

-- name: index_texts
WITH moved AS (UPDATE said_index SET position = greatest(position, $3))
INSERT INTO said_parts (position, parts)
SELECT position, ARRAY(SELECT number::INTEGER FROM jsonb_array_elements_text(given.parts::JSONB) AS number)
FROM unnest($1::BIGINT[], $2::TEXT[]) AS given (place, parts) JOIN events ON position = place
ON CONFLICT DO NOTHING;

-- name: workers
WITH owners AS (
    SELECT worker, count(*) AS runs, min(lease_until) AS lease_until FROM runs WHERE worker IS NOT NULL GROUP BY worker
), connections AS (
    SELECT split_part(application_name, ' ', 2) AS version, split_part(application_name, ' ', 3)::INTEGER AS places,
           split_part(application_name, ' ', 4) AS mark, split_part(application_name, ' ', 5) AS place,
           extract(epoch FROM min(backend_start))::DOUBLE PRECISION AS connected_at
    FROM pg_stat_activity
    WHERE datname = current_database() AND application_name ~ '^treadle-worker \S+ [0-9]{1,9} [0-9a-f]{8} \S+$'
    GROUP BY application_name
)
SELECT coalesce(worker, place || ':' || mark), coalesce(runs, 0), lease_until, coalesce(version, ''), places,
       connected_at
FROM owners FULL JOIN connections ON mark = right(worker, 8) ORDER BY 1;
