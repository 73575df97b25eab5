-- name: count_states
-- Open operations and named agents of a tenant by state.  All open operations are read: the index by
-- tenant also has every ended operation.
SELECT 'operation' AS noun, state, count(*) AS number
FROM (SELECT state, tenant FROM operation WHERE ended_at IS NULL OFFSET 0) AS open
WHERE tenant = $1
GROUP BY state
UNION ALL
SELECT 'agent', agent.state, count(*)
FROM agent_name
JOIN agent ON agent.uid = agent_name.agent
WHERE agent_name.tenant = $1
GROUP BY agent.state
