-- name: claim
-- Gives a worker ($1) at $2 the oldest open operations of workers without a live lease, at most $3, under their next token.
-- Their intents, but for burned ones, get the same token; what may have been called is unknown from now on.  Nobody has
-- called what is PENDING.  The claim is noted under $4.  Whether a lease lives is judged by the server's own clock, unless
-- $5 says at which time.  What follows a plan of $6 is left.
-- What another holds at this instant is left to it: an operation of which a row is held, and one of which something was
-- recorded since this statement began, for the intents of that record are not seen here and would not be fenced.
WITH RECURSIVE found (worker) AS (
    (SELECT worker FROM operation WHERE ended_at IS NULL ORDER BY worker LIMIT 1)
    UNION ALL
    SELECT (
        SELECT operation.worker
        FROM operation
        WHERE ended_at IS NULL AND operation.worker > found.worker
        ORDER BY operation.worker
        LIMIT 1
    )
    FROM found
    WHERE found.worker IS NOT NULL
),
judged AS MATERIALIZED (
    SELECT coalesce($5::double precision, extract(epoch FROM pg_catalog.clock_timestamp())::double precision) AS at
),
gone AS MATERIALIZED (
    SELECT worker
    FROM found
    CROSS JOIN judged
    WHERE worker IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.name = 'worker/' || found.worker AND lease.until >= judged.at)
),
oldest AS MATERIALIZED (
    SELECT mine.id, mine.worker, mine.revision
    FROM gone
    CROSS JOIN LATERAL (
        SELECT id, worker, revision
        FROM operation
        WHERE operation.worker = gone.worker AND ended_at IS NULL AND plan <> ALL ($6::text[])
        ORDER BY id
        LIMIT $3
    ) AS mine
    ORDER BY mine.id
    LIMIT $3
),
held AS MATERIALIZED (
    SELECT operation.id, operation.token, operation.state
    FROM oldest
    JOIN operation USING (id)
    WHERE operation.ended_at IS NULL AND operation.worker = oldest.worker AND operation.revision = oldest.revision
    ORDER BY operation.id
    FOR UPDATE OF operation SKIP LOCKED
),
parts AS MATERIALIZED (
    SELECT intent.operation, intent.step
    FROM held
    JOIN intent ON intent.operation = held.id
    WHERE intent.state <> 'BURNED'
    ORDER BY intent.operation, intent.step
    FOR UPDATE OF intent SKIP LOCKED
),
apart AS MATERIALIZED (
    SELECT intent.operation
    FROM held
    JOIN intent ON intent.operation = held.id
    WHERE intent.state <> 'BURNED' AND (intent.operation, intent.step) NOT IN (SELECT operation, step FROM parts)
),
chosen AS MATERIALIZED (
    SELECT id, token, state FROM held WHERE id NOT IN (SELECT operation FROM apart)
),
fenced AS (
    UPDATE intent
    SET token = chosen.token + 1,
        unknown_since = CASE
            WHEN chosen.state = 'PENDING' OR intent.state NOT IN ('INTENDED', 'REMOVING') THEN intent.unknown_since
            ELSE coalesce(intent.unknown_since, $2)
        END
    FROM chosen
    WHERE intent.operation = chosen.id AND intent.state <> 'BURNED'
),
noted AS (
    INSERT INTO batch (id, at, changes)
    SELECT $4, $2, coalesce(string_agg('claim:' || id, ' '), '') FROM chosen
)
UPDATE operation
SET worker = $1,
    token = operation.token + 1,
    revision = operation.revision + 1,
    state = CASE operation.state WHEN 'PENDING' THEN 'RUNNING' ELSE operation.state END
FROM chosen
WHERE operation.id = chosen.id
RETURNING operation.id, operation.token, operation.due_at

-- name: claimed
-- What a claim that was noted under $1 gave to worker $2, as far as it is still that worker's.
SELECT operation.id, operation.token, operation.due_at
FROM batch
CROSS JOIN LATERAL string_to_table(batch.changes, ' ') AS word
JOIN operation ON operation.id = substr(word, 7)
WHERE batch.id = $1 AND operation.worker = $2 AND operation.ended_at IS NULL

-- name: list_due
-- Open operations of a worker ($1) whose time has come at $2.
SELECT id, token, due_at FROM operation WHERE worker = $1 AND ended_at IS NULL AND due_at <= $2 ORDER BY id
