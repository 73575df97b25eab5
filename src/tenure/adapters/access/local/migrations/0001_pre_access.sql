-- Grants by subject (an agent's uid, which grows with time), and what teams give their members.

CREATE TABLE grant (
    subject     TEXT NOT NULL,
    key         TEXT NOT NULL,
    kind        TEXT NOT NULL CONSTRAINT grant_kind CHECK (kind = 'role' OR kind = 'team'),
    name        TEXT NOT NULL,
    tenant      TEXT NOT NULL,
    granted_by  TEXT NOT NULL,
    at          REAL NOT NULL,
    PRIMARY KEY (subject, key, kind, name)
) WITHOUT ROWID;

CREATE INDEX grant_by_granter ON grant (granted_by, tenant);

-- The generation of a resource whose grants were taken away.
CREATE TABLE revoked (
    key         TEXT PRIMARY KEY,
    generation  INTEGER NOT NULL,
    at          REAL NOT NULL
) WITHOUT ROWID;

CREATE TABLE team_role (
    team        TEXT NOT NULL,
    tenant      TEXT NOT NULL,
    role        TEXT NOT NULL,
    at          REAL NOT NULL,
    PRIMARY KEY (team, tenant, role)
) WITHOUT ROWID;
