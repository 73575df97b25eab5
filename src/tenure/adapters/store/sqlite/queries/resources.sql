-- name: list_resources
-- Intents of an agent that hold or may hold a resource, by operation and step.
SELECT intent.*
FROM operation
JOIN intent ON intent.operation = operation.id
WHERE operation.agent = :agent
  AND operation.tenant = :tenant
  AND intent.state <> 'BURNED'
ORDER BY intent.operation, intent.step
