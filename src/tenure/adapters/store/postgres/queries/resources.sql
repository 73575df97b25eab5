-- name: list_resources
-- Intents of an agent that have or may have a resource, by operation and step.  An INTENDED intent with a done record is
-- returned as PRESENT.
SELECT
    intent.operation, intent.step, intent.tenant, intent.slot, intent.key,
    CASE
        WHEN intent.state = 'INTENDED' AND EXISTS (
            SELECT 1
            FROM journal
            WHERE journal.operation = intent.operation AND journal.step = intent.step
              AND journal.kind IN ('done', 'adopted')
        ) THEN 'PRESENT'
        ELSE intent.state
    END AS state,
    intent.token, intent.attempts, intent.due_at, intent.unknown_since, intent.waiting_on, intent.detail
FROM operation
JOIN intent ON intent.operation = operation.id
WHERE operation.agent = $2
  AND operation.tenant = $1
  AND intent.state <> 'BURNED'
ORDER BY intent.operation, intent.step

-- name: list_living
-- Keys of a slot ($1) by agents ($2) and generations ($3), unless they are burned or the state of their agent is $4.
SELECT intent.key
FROM unnest($2::text[], $3::bigint[]) AS owner (agent, generation)
JOIN operation ON operation.agent = owner.agent AND operation.generation = owner.generation
JOIN intent ON intent.operation = operation.id
LEFT JOIN agent ON agent.uid = operation.agent
WHERE intent.slot = $1
  AND intent.state <> 'BURNED'
  AND agent.state IS DISTINCT FROM $4
