-- The kernel: operations, their journals and intents, the outbox, leases.
-- Text is compared byte by byte, as in every other store, whatever the database's own order.

-- Whose store this is: the name is part of every resource's key.
CREATE TABLE plane (
    one         TEXT COLLATE "C" PRIMARY KEY,
    name        TEXT COLLATE "C" NOT NULL,
    epoch       BIGINT,
    -- Why nothing may move until an operator confirms; empty: nothing holds it.
    held        TEXT COLLATE "C"
);

CREATE TABLE plan (
    digest      TEXT COLLATE "C" PRIMARY KEY,
    name        TEXT COLLATE "C" NOT NULL,
    version     BIGINT NOT NULL,
    body        TEXT COLLATE "C" NOT NULL
);

CREATE TABLE agent (
    uid         TEXT COLLATE "C" PRIMARY KEY,
    tenant      TEXT COLLATE "C" NOT NULL,
    generation  BIGINT NOT NULL,
    name        TEXT COLLATE "C",
    state       TEXT COLLATE "C" CONSTRAINT agent_state CHECK (
        state = 'CREATING' OR state = 'CREATE_FAILED' OR state = 'READY' OR state = 'UPDATING' OR
        state = 'UPDATE_FAILED' OR state = 'SUSPENDING' OR state = 'SUSPENDED' OR state = 'RESUMING' OR
        state = 'MIGRATING' OR state = 'DELETING' OR state = 'DELETE_FAILED' OR state = 'DELETED'
    ),
    -- The one operation that works on the agent, and the closing one that waits for its turn.
    operation   TEXT COLLATE "C",
    next        TEXT COLLATE "C",
    -- Raised whenever the agent is closed: what was handed out under a smaller one is void.
    epoch       BIGINT,
    parent      TEXT COLLATE "C",
    spec        TEXT COLLATE "C",
    -- What serves it: the key of its runtime.
    serving     TEXT COLLATE "C",
    created_at  DOUBLE PRECISION,
    updated_at  DOUBLE PRECISION
);

CREATE INDEX agent_parent ON agent (parent) WHERE parent IS NOT NULL;

CREATE TABLE idempotency (
    tenant      TEXT COLLATE "C" NOT NULL,
    principal   TEXT COLLATE "C" NOT NULL,
    route       TEXT COLLATE "C" NOT NULL,
    key         TEXT COLLATE "C" NOT NULL,
    operation   TEXT COLLATE "C" NOT NULL,
    fingerprint TEXT COLLATE "C" NOT NULL,
    at          DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (tenant, principal, route, key)
);

CREATE TABLE operation (
    id          TEXT COLLATE "C" PRIMARY KEY,
    tenant      TEXT COLLATE "C" NOT NULL,
    principal   TEXT COLLATE "C" NOT NULL,
    kind        TEXT COLLATE "C" NOT NULL,
    plan        TEXT COLLATE "C" NOT NULL,
    agent       TEXT COLLATE "C" NOT NULL,
    generation  BIGINT NOT NULL,
    state       TEXT COLLATE "C" NOT NULL CONSTRAINT operation_state CHECK (
        state = 'PENDING' OR state = 'RUNNING' OR state = 'WAITING' OR state = 'COMPENSATING' OR
        state = 'STUCK' OR state = 'SUCCEEDED' OR state = 'COMPENSATED' OR state = 'ABANDONED'
    ),
    revision    BIGINT NOT NULL,
    token       BIGINT NOT NULL,
    worker      TEXT COLLATE "C" NOT NULL,
    due_at      DOUBLE PRECISION,
    input       TEXT COLLATE "C" NOT NULL,
    error       TEXT COLLATE "C",
    created_at  DOUBLE PRECISION NOT NULL,
    updated_at  DOUBLE PRECISION NOT NULL,
    ended_at    DOUBLE PRECISION
) WITH (fillfactor = 80);

CREATE INDEX operation_open ON operation (worker, id) WHERE ended_at IS NULL;

CREATE INDEX operation_tenant ON operation (tenant, id);

-- What an agent holds is found through its operations.
CREATE INDEX operation_agent ON operation (agent, generation);

CREATE TABLE journal (
    operation   TEXT COLLATE "C" NOT NULL,
    seq         BIGINT NOT NULL,
    tenant      TEXT COLLATE "C" NOT NULL,
    kind        TEXT COLLATE "C" NOT NULL CONSTRAINT journal_kind CHECK (
        kind = 'accepted' OR kind = 'done' OR kind = 'refused' OR kind = 'compensating' OR
        kind = 'undone' OR kind = 'stuck' OR kind = 'signalled' OR kind = 'retried' OR
        kind = 'adopted' OR kind = 'marked_absent' OR kind = 'abandoned'
    ),
    step        TEXT COLLATE "C" NOT NULL,
    at          DOUBLE PRECISION NOT NULL,
    body        TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (operation, seq)
);

CREATE TABLE intent (
    operation     TEXT COLLATE "C" NOT NULL,
    step          TEXT COLLATE "C" NOT NULL,
    tenant        TEXT COLLATE "C" NOT NULL,
    slot          TEXT COLLATE "C" NOT NULL,
    key           TEXT COLLATE "C" NOT NULL,
    state         TEXT COLLATE "C" NOT NULL CONSTRAINT intent_state CHECK (
        state = 'INTENDED' OR state = 'PRESENT' OR state = 'REFUSED' OR state = 'REMOVING' OR
        state = 'BURNED'
    ),
    token         BIGINT NOT NULL,
    attempts      BIGINT NOT NULL,
    due_at        DOUBLE PRECISION,
    unknown_since DOUBLE PRECISION,
    waiting_on    TEXT COLLATE "C",
    detail        TEXT COLLATE "C",
    PRIMARY KEY (operation, step)
) WITH (fillfactor = 80);

-- Added to this server's transaction numbers, so that positions go on where those of another server ended.
CREATE TABLE horizon (
    one         BOOLEAN PRIMARY KEY,
    moved       BIGINT NOT NULL
);

INSERT INTO horizon VALUES (true, 0);

-- Several write at once, so no sequence gives the order of commits.  A position is the number of its transaction and a
-- place in it: later commits only add beyond the oldest transaction that is still open, and readers go no further.
CREATE TABLE outbox (
    position    BIGINT PRIMARY KEY,
    tenant      TEXT COLLATE "C" NOT NULL,
    agent       TEXT COLLATE "C" NOT NULL,
    operation   TEXT COLLATE "C" NOT NULL,
    type        TEXT COLLATE "C" NOT NULL,
    at          DOUBLE PRECISION NOT NULL,
    body        TEXT COLLATE "C" NOT NULL,
    -- Grows by one for each event of an agent; rows of earlier releases have none.
    sequence    BIGINT
);

CREATE TABLE lease (
    name        TEXT COLLATE "C" PRIMARY KEY,
    holder      TEXT COLLATE "C" NOT NULL,
    token       BIGINT NOT NULL,
    until       DOUBLE PRECISION NOT NULL
) WITH (fillfactor = 50);

-- The store's own: which changes a transaction applied, by an id of the transaction's own, and the numbers it gives.
CREATE TABLE batch (
    id          TEXT COLLATE "C" PRIMARY KEY,
    at          DOUBLE PRECISION NOT NULL,
    changes     TEXT COLLATE "C" NOT NULL
);

CREATE INDEX batch_at ON batch (at);

CREATE TABLE counter (
    name        TEXT COLLATE "C" PRIMARY KEY,
    value       BIGINT NOT NULL
);

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
    revoked_at  DOUBLE PRECISION,
    epoch       BIGINT
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

-- Who wants to hear of what; its secret is sealed.
CREATE TABLE subscription (
    id            TEXT COLLATE "C" PRIMARY KEY,
    tenant        TEXT COLLATE "C" NOT NULL,
    principal     TEXT COLLATE "C" NOT NULL,
    name          TEXT COLLATE "C" NOT NULL,
    kind          TEXT COLLATE "C" NOT NULL CONSTRAINT subscription_kind CHECK (
        kind = 'webhook' OR kind = 'nats' OR kind = 'pull'
    ),
    target        TEXT COLLATE "C" NOT NULL,
    agent         TEXT COLLATE "C" NOT NULL,
    types         TEXT COLLATE "C" NOT NULL,
    required      BIGINT NOT NULL,
    secret        TEXT COLLATE "C",
    secret_before TEXT COLLATE "C",
    before_until  DOUBLE PRECISION,
    revision      BIGINT NOT NULL,
    created_at    DOUBLE PRECISION NOT NULL,
    updated_at    DOUBLE PRECISION NOT NULL
);

CREATE INDEX subscription_tenant ON subscription (tenant, id);

-- How far a destination is: what is not beyond it was delivered there, or is a dead letter.
CREATE TABLE cursor (
    destination   TEXT COLLATE "C" PRIMARY KEY,
    position      BIGINT NOT NULL,
    attempts      BIGINT NOT NULL,
    due_at        DOUBLE PRECISION NOT NULL,
    why           TEXT COLLATE "C" NOT NULL,
    since         DOUBLE PRECISION,
    missed        BIGINT NOT NULL
);

-- One agent's stream that a destination does not take, while it takes others.
CREATE TABLE parked (
    destination   TEXT COLLATE "C" NOT NULL,
    agent         TEXT COLLATE "C" NOT NULL,
    attempts      BIGINT NOT NULL,
    due_at        DOUBLE PRECISION,
    why           TEXT COLLATE "C" NOT NULL,
    since         DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (destination, agent)
);

-- Its events, in order, until they are taken or discarded.
CREATE TABLE letter (
    destination   TEXT COLLATE "C" NOT NULL,
    agent         TEXT COLLATE "C" NOT NULL,
    position      BIGINT NOT NULL,
    tenant        TEXT COLLATE "C" NOT NULL,
    operation     TEXT COLLATE "C" NOT NULL,
    type          TEXT COLLATE "C" NOT NULL,
    at            DOUBLE PRECISION NOT NULL,
    body          TEXT COLLATE "C" NOT NULL,
    sequence      BIGINT,
    PRIMARY KEY (destination, agent, position)
);

-- A required subscriber that an operation waits for, from its acceptance on.
CREATE TABLE awaited (
    operation       TEXT COLLATE "C" NOT NULL,
    subscription    TEXT COLLATE "C" NOT NULL,
    tenant          TEXT COLLATE "C" NOT NULL,
    agent           TEXT COLLATE "C" NOT NULL,
    since           DOUBLE PRECISION NOT NULL,
    acknowledged_at DOUBLE PRECISION,
    principal       TEXT COLLATE "C",
    PRIMARY KEY (operation, subscription)
);

CREATE INDEX awaited_open ON awaited (tenant) WHERE acknowledged_at IS NULL;

-- What holds for a tenant as a whole; the revision rises when something new is awaited.
CREATE TABLE tenancy (
    tenant        TEXT COLLATE "C" PRIMARY KEY,
    strict        BIGINT NOT NULL,
    revision      BIGINT NOT NULL
);

-- One row for each thing that was seen; `sightings` counts how often, `resolved_at` is when it was so no longer.
CREATE TABLE finding (
    id          TEXT COLLATE "C" PRIMARY KEY,
    tenant      TEXT COLLATE "C" NOT NULL,
    reconciler  TEXT COLLATE "C" NOT NULL,
    kind        TEXT COLLATE "C" NOT NULL CONSTRAINT finding_kind CHECK (
        kind = 'CONFIRMED' OR kind = 'DRIFT' OR kind = 'UNVERIFIABLE'
    ),
    agent       TEXT COLLATE "C" NOT NULL,
    resource    TEXT COLLATE "C" NOT NULL,
    first_seen  DOUBLE PRECISION NOT NULL,
    last_seen   DOUBLE PRECISION NOT NULL,
    sightings   BIGINT NOT NULL,
    resolved_at DOUBLE PRECISION,
    resolved_by TEXT COLLATE "C",
    body        TEXT COLLATE "C" NOT NULL
);

CREATE INDEX finding_tenant ON finding (tenant, id);

CREATE INDEX finding_open ON finding (reconciler, id) WHERE resolved_at IS NULL;

-- What an agent owns or has granted; written in the commit that makes the target.
CREATE TABLE edge (
    owner       TEXT COLLATE "C" NOT NULL,
    kind        TEXT COLLATE "C" NOT NULL CONSTRAINT edge_kind CHECK (
        kind = 'agent' OR kind = 'grant' OR kind = 'webhook' OR kind = 'credential' OR
        kind = 'session'
    ),
    target      TEXT COLLATE "C" NOT NULL,
    tenant      TEXT COLLATE "C" NOT NULL,
    on_delete   TEXT COLLATE "C" NOT NULL,
    at          DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (owner, kind, target)
);

CREATE INDEX edge_target ON edge (target, kind, owner);

INSERT INTO edge (owner, kind, target, tenant, on_delete, at)
SELECT parent, 'agent', uid, tenant, 'revoke', coalesce(created_at, 0.0)
FROM agent
WHERE parent IS NOT NULL AND state <> 'DELETED';
