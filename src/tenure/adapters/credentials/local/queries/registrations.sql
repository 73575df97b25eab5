-- name: list_registrations
-- One page of what an agent may ask for and whether it may, in the order of its keys.
SELECT registration.agent, registration.key, registration.audience, registration.scopes,
       registration.ttl_seconds, registration.at, coalesce(closing.closed, 0)
FROM registration
LEFT JOIN closing ON closing.agent = registration.agent AND closing.tenant = registration.tenant
WHERE registration.agent = :agent
  AND registration.tenant = :tenant
  AND (registration.key, registration.audience) > (:after_key, :after_audience)
ORDER BY registration.key, registration.audience
LIMIT :limit

-- name: registrations_of_key
-- The registrations of one resource.
SELECT audience, scopes, ttl_seconds
FROM registration
WHERE agent = :agent
  AND key = :key
  AND tenant = :tenant
