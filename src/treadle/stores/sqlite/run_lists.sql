-- name: find_runs
SELECT run_id, session_id, agent_id, parent_run_id, status, outcome, created_at, wake_at, waiting_for,
       (SELECT coalesce(max(sequence), 0) FROM events WHERE events.run = runs.id), coalesce(name, ''), runs.owner,
       coalesce(summary.message, ''), summary.cost, summary.tokens, summary.steps, summary.duration_ms,
       coalesce(summary.labels, ''), coalesce(summary.facts, '')

-- name: from_runs
FROM runs LEFT JOIN agents USING (agent_id) LEFT JOIN run_summaries AS summary ON summary.run = runs.id WHERE TRUE

-- name: from_runs_of_owners
FROM runs INDEXED BY runs_of_owner
     LEFT JOIN agents USING (agent_id) LEFT JOIN run_summaries AS summary ON summary.run = runs.id WHERE TRUE

-- name: from_runs_of_agent
FROM runs INDEXED BY runs_of_agent
     LEFT JOIN agents USING (agent_id) LEFT JOIN run_summaries AS summary ON summary.run = runs.id
WHERE runs.agent_id = (SELECT agent_id FROM agents WHERE name = ?)

-- name: from_runs_of_outcome
FROM runs INDEXED BY runs_of_outcome
     LEFT JOIN agents USING (agent_id) LEFT JOIN run_summaries AS summary ON summary.run = runs.id WHERE TRUE

-- name: from_ended_runs_of_status
FROM runs INDEXED BY ended_runs_of_status
     LEFT JOIN agents USING (agent_id) LEFT JOIN run_summaries AS summary ON summary.run = runs.id
WHERE outcome IS NOT NULL

-- name: from_unfinished_runs
FROM runs INDEXED BY runs_unfinished
     LEFT JOIN agents USING (agent_id) LEFT JOIN run_summaries AS summary ON summary.run = runs.id
WHERE outcome IS NULL

-- name: from_times
FROM runs INDEXED BY runs_by_time
     LEFT JOIN agents USING (agent_id) LEFT JOIN run_summaries AS summary ON summary.run = runs.id WHERE TRUE

-- name: from_numbers
FROM json_each(?) AS number CROSS JOIN runs ON runs.id = number.value
     LEFT JOIN agents USING (agent_id) LEFT JOIN run_summaries AS summary ON summary.run = runs.id WHERE TRUE

-- name: runs_by_text
SELECT run FROM (SELECT run FROM said_parts CROSS JOIN events ON position = said_parts.rowid WHERE said_parts MATCH ?1
      LIMIT ?2)
UNION ALL
SELECT run FROM (SELECT run FROM events INDEXED BY events_said
                 WHERE position > (SELECT position FROM said_index)
                   AND type IN ('user_message', 'message_steered', 'run_forked', 'run_end') LIMIT ?2);

-- name: runs_by_cost
SELECT run FROM run_summaries WHERE cost >= ? LIMIT ?;

-- name: from_summaries
FROM run_summaries AS summary CROSS JOIN runs ON runs.id = summary.run LEFT JOIN agents USING (agent_id) WHERE TRUE

-- name: from_labels
FROM run_labels AS chosen CROSS JOIN runs ON runs.id = chosen.run
     LEFT JOIN agents USING (agent_id) LEFT JOIN run_summaries AS summary ON summary.run = runs.id
WHERE chosen.key = ? AND chosen.value = ?

-- name: from_labels_of_owners
FROM run_labels AS chosen INDEXED BY labels_of_owner CROSS JOIN runs ON runs.id = chosen.run
     LEFT JOIN agents USING (agent_id) LEFT JOIN run_summaries AS summary ON summary.run = runs.id
WHERE chosen.key = ? AND chosen.value = ?

-- name: and_label
AND EXISTS (SELECT 1 FROM run_labels AS other WHERE other.key = ? AND other.value = ? AND other.run = runs.id)

-- name: and_owner
AND runs.owner = ?

-- name: and_owners
AND runs.owner IN (SELECT value FROM json_each(?))

-- name: and_label_of_owner
AND chosen.owner = ?

-- name: and_label_of_owners
AND chosen.owner IN (SELECT value FROM json_each(?))

-- name: and_before
AND runs.id < (SELECT id FROM runs WHERE run_id = ?)

-- name: and_summary_before
AND summary.run < (SELECT id FROM runs WHERE run_id = ?)

-- name: and_summary_before_of_owners
AND summary.run < (SELECT id FROM runs WHERE run_id = ? AND owner IN (SELECT value FROM json_each(?)))

-- name: and_before_in_time
AND (runs.created_at, runs.id) < (SELECT created_at, id FROM runs WHERE run_id = ?)

-- name: and_label_before
AND chosen.run < (SELECT id FROM runs WHERE run_id = ?)

-- name: and_before_of_owners
AND runs.id < (SELECT id FROM runs WHERE run_id = ? AND owner IN (SELECT value FROM json_each(?)))

-- name: and_label_before_of_owners
AND chosen.run < (SELECT id FROM runs WHERE run_id = ? AND owner IN (SELECT value FROM json_each(?)))

-- name: and_agents
AND runs.agent_id IN (SELECT agent_id FROM agents WHERE name IN (SELECT value FROM json_each(?)))

-- name: and_session
AND session_id = ?

-- name: and_parent
AND parent_run_id = ?

-- name: and_status
AND status = ?

-- name: and_outcome
AND outcome = ?

-- name: and_unfinished
AND outcome IS NULL

-- name: and_id_prefix
AND run_id >= ?

-- name: and_id_prefix_end
AND run_id < ? || 'g'

-- name: and_id_suffix
AND run_id LIKE '%' || replace(?, '%', '')

-- name: and_since
AND created_at >= ?

-- name: and_until
AND created_at < ?

-- name: and_text
AND instr(lower(summary.message), lower(?)) > 0

-- name: and_min_cost
AND summary.cost >= ?

-- name: and_behind
AND (VALUE, runs.id) COMPARED (
    SELECT VALUE, runs.id FROM runs LEFT JOIN run_summaries AS summary ON summary.run = runs.id
    WHERE run_id = ? AND (? IS NULL OR owner IN (SELECT value FROM json_each(?))))

-- name: sorted_runs
ORDER BY VALUE DIRECTION, runs.id DIRECTION LIMIT ?

-- name: sum_runs
SELECT count(*), count(*) FILTER (WHERE status = 'failed'), total(summary.cost), CAST(total(summary.tokens) AS INTEGER)

-- name: newest_runs
ORDER BY runs.id DESC LIMIT ?

-- name: newest_labelled_runs
ORDER BY chosen.run DESC LIMIT ?

-- name: newest_summaries
ORDER BY summary.run DESC LIMIT ?

-- name: newest_runs_by_time
ORDER BY runs.created_at DESC, runs.id DESC LIMIT ?
