-- The lifecycle: an agent is a record and a lock of its own; names, quotas, tokens, the audit log.

ALTER TABLE agent ADD COLUMN name TEXT;
ALTER TABLE agent ADD COLUMN state TEXT CONSTRAINT agent_state CHECK (
    state = 'CREATING' OR state = 'CREATE_FAILED' OR state = 'READY' OR state = 'UPDATING' OR
    state = 'UPDATE_FAILED' OR state = 'SUSPENDING' OR state = 'SUSPENDED' OR state = 'RESUMING' OR
    state = 'MIGRATING' OR state = 'DELETING' OR state = 'DELETE_FAILED' OR state = 'DELETED'
);
-- The one operation that works on the agent, and the closing one that waits for its turn.
ALTER TABLE agent ADD COLUMN operation TEXT;
ALTER TABLE agent ADD COLUMN next TEXT;
-- Raised whenever the agent is closed: what was handed out under a smaller one is void.
ALTER TABLE agent ADD COLUMN epoch INTEGER;
ALTER TABLE agent ADD COLUMN parent TEXT;
ALTER TABLE agent ADD COLUMN spec TEXT;
-- What serves it: the key of its runtime.
ALTER TABLE agent ADD COLUMN serving TEXT;
ALTER TABLE agent ADD COLUMN created_at REAL;
ALTER TABLE agent ADD COLUMN updated_at REAL;

UPDATE agent SET operation = (SELECT operation FROM active WHERE active.agent = agent.uid);
DROP TABLE active;

CREATE INDEX agent_parent ON agent (parent) WHERE parent IS NOT NULL;

-- A name is free again once its agent is deleted.
CREATE TABLE agent_name (
    tenant      TEXT NOT NULL,
    name        TEXT NOT NULL,
    agent       TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID;

CREATE TABLE quota (
    tenant      TEXT NOT NULL,
    kind        TEXT NOT NULL,
    most        INTEGER NOT NULL,
    revision    INTEGER NOT NULL,
    PRIMARY KEY (tenant, kind)
) WITHOUT ROWID;

-- One row for each thing that counts against a quota; never a number that goes up and down.
CREATE TABLE reservation (
    tenant      TEXT NOT NULL,
    kind        TEXT NOT NULL,
    agent       TEXT NOT NULL,
    operation   TEXT NOT NULL,
    at          REAL NOT NULL,
    PRIMARY KEY (tenant, kind, agent)
) WITHOUT ROWID;

-- Keys that were burned a while ago: what turns up under one of them late is removed again.
CREATE TABLE tombstone (
    operation   TEXT NOT NULL,
    step        TEXT NOT NULL,
    until       REAL NOT NULL,
    sightings   INTEGER NOT NULL,
    PRIMARY KEY (operation, step)
) WITHOUT ROWID;

-- Who may ask: the hash of a token, never the token.
CREATE TABLE token (
    hash        TEXT PRIMARY KEY,
    id          TEXT NOT NULL,
    tenant      TEXT NOT NULL,
    principal   TEXT NOT NULL,
    role        TEXT NOT NULL CONSTRAINT token_role CHECK (
        role = 'viewer' OR role = 'operator' OR role = 'approver' OR role = 'admin'
    ),
    created_at  REAL NOT NULL,
    expires_at  REAL,
    revoked_at  REAL
) WITHOUT ROWID;

CREATE INDEX token_tenant ON token (tenant, id);

-- Append-only; each row carries the hash of itself and of the one before it.
CREATE TABLE audit (
    position    INTEGER PRIMARY KEY,
    tenant      TEXT NOT NULL,
    principal   TEXT NOT NULL,
    action      TEXT NOT NULL,
    target      TEXT NOT NULL,
    at          REAL NOT NULL,
    body        TEXT NOT NULL,
    hash        TEXT NOT NULL
);

CREATE INDEX audit_tenant ON audit (tenant, position);

CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;

CREATE TRIGGER audit_is_never_shortened BEFORE DELETE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
