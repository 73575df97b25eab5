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
    END,
    intent.token, intent.attempts, intent.due_at, intent.unknown_since, intent.waiting_on, intent.detail
FROM operation
JOIN intent ON intent.operation = operation.id
WHERE operation.agent = :agent
  AND operation.tenant = :tenant
  AND intent.state <> 'BURNED'
ORDER BY intent.operation, intent.step

-- name: list_living
-- A JSON list of a slot's keys by one of (agent, generation), unless they are burned or the state of their agent is :gone.
SELECT json_group_array(intent.key)
FROM json_each(:agent_generations) AS pair
JOIN operation ON operation.agent = pair.value ->> 0 AND operation.generation = pair.value ->> 1
JOIN intent ON intent.operation = operation.id
LEFT JOIN agent ON agent.uid = operation.agent
WHERE intent.slot = :slot
  AND intent.state <> 'BURNED'
  AND agent.state IS NOT :gone
