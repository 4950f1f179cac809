-- name: put_evaluation
INSERT INTO evaluations (evaluation_id, name, ended_at, summary, content) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (evaluation_id) DO UPDATE SET
    name = excluded.name, ended_at = excluded.ended_at, summary = excluded.summary, content = excluded.content;

-- name: evaluation
SELECT content FROM evaluations WHERE evaluation_id = $1;

-- name: latest_evaluation
SELECT content FROM evaluations WHERE name = $1 ORDER BY ended_at DESC LIMIT 1;

-- name: evaluations
SELECT summary FROM evaluations WHERE ended_at < $1 AND ($3::text IS NULL OR name = $3) ORDER BY ended_at DESC LIMIT $2;

-- name: put_feedback
INSERT INTO feedback (feedback_id, run, author, score, note, at)
SELECT $1, id, $3, $4, $5, $6 FROM runs WHERE run_id = $2
ON CONFLICT (run, author) DO UPDATE SET score = excluded.score, note = excluded.note, at = excluded.at;

-- name: feedback_of_run
SELECT feedback_id, run_id, author, score, note, at FROM feedback JOIN runs ON runs.id = run
WHERE run_id = $1 ORDER BY at;

-- name: feedback
SELECT feedback_id, run_id, author, score, note, at FROM feedback JOIN runs ON runs.id = run
WHERE at < $1 AND ($2::FLOAT8 IS NULL OR score <= $2) AND ($3::FLOAT8 IS NULL OR score >= $3) ORDER BY at DESC LIMIT $4;
