-- name: count_open_operations
-- Open operations of a tenant by state.  Without the hint SQLite uses the index by tenant, which also has every
-- ended operation.
SELECT 'operation', state, count(*)
FROM operation INDEXED BY operation_open
WHERE ended_at IS NULL AND tenant = :tenant
GROUP BY state

-- name: count_agents
-- Agents of a tenant that have a name, by state.
SELECT 'agent', agent.state, count(*)
FROM agent_name
JOIN agent ON agent.uid = agent_name.agent
WHERE agent_name.tenant = :tenant
GROUP BY agent.state
