-- The lifecycle: an agent is a record and a lock of its own; names, quotas, tokens, the audit log.

ALTER TABLE agent ADD COLUMN name TEXT COLLATE "C";
ALTER TABLE agent ADD COLUMN state TEXT COLLATE "C" CONSTRAINT agent_state CHECK (
    state = 'CREATING' OR state = 'CREATE_FAILED' OR state = 'READY' OR state = 'UPDATING' OR
    state = 'UPDATE_FAILED' OR state = 'SUSPENDING' OR state = 'SUSPENDED' OR state = 'RESUMING' OR
    state = 'MIGRATING' OR state = 'DELETING' OR state = 'DELETE_FAILED' OR state = 'DELETED'
);
-- The one operation that works on the agent, and the closing one that waits for its turn.
ALTER TABLE agent ADD COLUMN operation TEXT COLLATE "C";
ALTER TABLE agent ADD COLUMN next TEXT COLLATE "C";
-- Raised whenever the agent is closed: what was handed out under a smaller one is void.
ALTER TABLE agent ADD COLUMN epoch BIGINT;
ALTER TABLE agent ADD COLUMN parent TEXT COLLATE "C";
ALTER TABLE agent ADD COLUMN spec TEXT COLLATE "C";
-- What serves it: the key of its runtime.
ALTER TABLE agent ADD COLUMN serving TEXT COLLATE "C";
ALTER TABLE agent ADD COLUMN created_at DOUBLE PRECISION;
ALTER TABLE agent ADD COLUMN updated_at DOUBLE PRECISION;

UPDATE agent SET operation = (SELECT operation FROM active WHERE active.agent = agent.uid);
DROP TABLE active;

CREATE INDEX agent_parent ON agent (parent) WHERE parent IS NOT NULL;

-- A name is free again once its agent is deleted.
CREATE TABLE agent_name (
    tenant      TEXT COLLATE "C" NOT NULL,
    name        TEXT COLLATE "C" NOT NULL,
    agent       TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, name)
);

CREATE TABLE quota (
    tenant      TEXT COLLATE "C" NOT NULL,
    kind        TEXT COLLATE "C" NOT NULL,
    most        BIGINT NOT NULL,
    revision    BIGINT NOT NULL,
    PRIMARY KEY (tenant, kind)
);

-- One row for each thing that counts against a quota; never a number that goes up and down.
CREATE TABLE reservation (
    tenant      TEXT COLLATE "C" NOT NULL,
    kind        TEXT COLLATE "C" NOT NULL,
    agent       TEXT COLLATE "C" NOT NULL,
    operation   TEXT COLLATE "C" NOT NULL,
    at          DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (tenant, kind, agent)
);

-- Keys that were burned a while ago: what turns up under one of them late is removed again.
CREATE TABLE tombstone (
    operation   TEXT COLLATE "C" NOT NULL,
    step        TEXT COLLATE "C" NOT NULL,
    until       DOUBLE PRECISION NOT NULL,
    sightings   BIGINT NOT NULL,
    PRIMARY KEY (operation, step)
);

-- Who may ask: the hash of a token, never the token.
CREATE TABLE token (
    hash        TEXT COLLATE "C" PRIMARY KEY,
    id          TEXT COLLATE "C" NOT NULL,
    tenant      TEXT COLLATE "C" NOT NULL,
    principal   TEXT COLLATE "C" NOT NULL,
    role        TEXT COLLATE "C" NOT NULL CONSTRAINT token_role CHECK (
        role = 'viewer' OR role = 'operator' OR role = 'approver' OR role = 'admin'
    ),
    created_at  DOUBLE PRECISION NOT NULL,
    expires_at  DOUBLE PRECISION,
    revoked_at  DOUBLE PRECISION
);

CREATE INDEX token_tenant ON token (tenant, id);

-- Append-only; each row carries the hash of itself and of the one before it.
CREATE TABLE audit (
    position    BIGINT PRIMARY KEY,
    tenant      TEXT COLLATE "C" NOT NULL,
    principal   TEXT COLLATE "C" NOT NULL,
    action      TEXT COLLATE "C" NOT NULL,
    target      TEXT COLLATE "C" NOT NULL,
    at          DOUBLE PRECISION NOT NULL,
    body        TEXT COLLATE "C" NOT NULL,
    hash        TEXT COLLATE "C" NOT NULL
);

CREATE INDEX audit_tenant ON audit (tenant, position);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$;

CREATE TRIGGER audit_is_never_changed BEFORE UPDATE OR DELETE ON audit
FOR EACH ROW EXECUTE FUNCTION refuse_change();

CREATE TRIGGER audit_is_never_shortened BEFORE TRUNCATE ON audit
FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
