-- name: check_role
-- A row if the subject has the role, by a grant or by one of its teams.
SELECT 1
FROM grant
WHERE subject = :subject
  AND tenant = :tenant
  AND (
    (kind = 'role' AND name = :role)
    OR (kind = 'team' AND EXISTS (
        SELECT 1 FROM team_role WHERE team = grant.name AND tenant = :tenant AND role = :role
    ))
  )
LIMIT 1

-- name: list_by_subject
-- One page of a subject's grants, in the order of their keys.
SELECT subject, key, kind, name, granted_by, at
FROM grant
WHERE subject = :subject
  AND tenant = :tenant
  AND (subject, key, kind, name) > (:after_subject, :after_key, :after_kind, :after_name)
ORDER BY subject, key, kind, name
LIMIT :limit

-- name: list_by_granter
-- One page of what a granter has granted, in the order of their keys.
SELECT subject, key, kind, name, granted_by, at
FROM grant
WHERE granted_by = :granter
  AND tenant = :tenant
  AND (subject, key, kind, name) > (:after_subject, :after_key, :after_kind, :after_name)
ORDER BY subject, key, kind, name
LIMIT :limit

-- name: grants_of_key
-- The grants of one resource.
SELECT kind, name, granted_by
FROM grant
WHERE subject = :subject
  AND key = :key
  AND tenant = :tenant

-- name: grants_of_subject
-- Everything a subject was granted with the state of its resource, from one snapshot.
SELECT grant.subject, grant.key, grant.kind, grant.name, resource.revision, resource.generation
FROM grant
JOIN resource ON resource.key = grant.key
WHERE grant.subject = :subject
  AND grant.tenant = :tenant
ORDER BY grant.key, grant.kind, grant.name

-- name: grants_of_granter
-- The same for everything that one granter has granted.
SELECT grant.subject, grant.key, grant.kind, grant.name, resource.revision, resource.generation
FROM grant
JOIN resource ON resource.key = grant.key
WHERE grant.granted_by = :granter
  AND grant.tenant = :tenant
ORDER BY grant.subject, grant.key, grant.kind, grant.name

-- name: list_team_roles
-- What a team gives its members.
SELECT role
FROM team_role
WHERE team = :team
  AND tenant = :tenant
ORDER BY role
