-- The kernel: operations, their journals and intents, the outbox, leases.
-- A CHECK compares word by word: `IN` would build a table of the words for every row written, at half of its cost.

-- Whose store this is: the name is part of every resource's key.
CREATE TABLE plane (
    one         TEXT PRIMARY KEY,
    name        TEXT NOT NULL,
    epoch       INTEGER,
    -- Why nothing may move until an operator confirms; empty: nothing holds it.
    held        TEXT
) WITHOUT ROWID;

CREATE TABLE plan (
    digest      TEXT PRIMARY KEY,
    name        TEXT NOT NULL,
    version     INTEGER NOT NULL,
    body        TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE agent (
    uid         TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL,
    generation  INTEGER NOT NULL,
    name        TEXT,
    state       TEXT CONSTRAINT agent_state CHECK (
        state = 'CREATING' OR state = 'CREATE_FAILED' OR state = 'READY' OR state = 'UPDATING' OR
        state = 'UPDATE_FAILED' OR state = 'SUSPENDING' OR state = 'SUSPENDED' OR state = 'RESUMING' OR
        state = 'MIGRATING' OR state = 'DELETING' OR state = 'DELETE_FAILED' OR state = 'DELETED'
    ),
    -- The one operation that works on the agent, and the closing one that waits for its turn.
    operation   TEXT,
    next        TEXT,
    -- Raised whenever the agent is closed: what was handed out under a smaller one is void.
    epoch       INTEGER,
    parent      TEXT,
    spec        TEXT,
    -- What serves it: the key of its runtime.
    serving     TEXT,
    created_at  REAL,
    updated_at  REAL
) WITHOUT ROWID;

CREATE INDEX agent_parent ON agent (parent) WHERE parent IS NOT NULL;

CREATE TABLE idempotency (
    tenant      TEXT NOT NULL,
    principal   TEXT NOT NULL,
    route       TEXT NOT NULL,
    key         TEXT NOT NULL,
    operation   TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    at          REAL NOT NULL,
    PRIMARY KEY (tenant, principal, route, key)
) WITHOUT ROWID;

CREATE TABLE operation (
    id          TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL,
    principal   TEXT NOT NULL,
    kind        TEXT NOT NULL,
    plan        TEXT NOT NULL,
    agent       TEXT NOT NULL,
    generation  INTEGER NOT NULL,
    state       TEXT NOT NULL CONSTRAINT operation_state CHECK (
        state = 'PENDING' OR state = 'RUNNING' OR state = 'WAITING' OR state = 'COMPENSATING' OR
        state = 'STUCK' OR state = 'SUCCEEDED' OR state = 'COMPENSATED' OR state = 'ABANDONED'
    ),
    revision    INTEGER NOT NULL,
    token       INTEGER NOT NULL,
    worker      TEXT NOT NULL,
    due_at      REAL,
    input       TEXT NOT NULL,
    error       TEXT,
    created_at  REAL NOT NULL,
    updated_at  REAL NOT NULL,
    ended_at    REAL
) WITHOUT ROWID;

CREATE INDEX operation_open ON operation (worker, id) WHERE ended_at IS NULL;

CREATE INDEX operation_tenant ON operation (tenant, id);

-- What an agent holds is found through its operations.
CREATE INDEX operation_agent ON operation (agent, generation);

CREATE TABLE journal (
    operation   TEXT NOT NULL,
    seq         INTEGER NOT NULL,
    tenant      TEXT NOT NULL,
    kind        TEXT NOT NULL CONSTRAINT journal_kind CHECK (
        kind = 'accepted' OR kind = 'done' OR kind = 'refused' OR kind = 'compensating' OR
        kind = 'undone' OR kind = 'stuck' OR kind = 'signalled' OR kind = 'retried' OR
        kind = 'adopted' OR kind = 'marked_absent' OR kind = 'abandoned'
    ),
    step        TEXT NOT NULL,
    at          REAL NOT NULL,
    body        TEXT NOT NULL,
    PRIMARY KEY (operation, seq)
) WITHOUT ROWID;

CREATE TABLE intent (
    operation     TEXT NOT NULL,
    step          TEXT NOT NULL,
    tenant        TEXT NOT NULL,
    slot          TEXT NOT NULL,
    key           TEXT NOT NULL,
    state         TEXT NOT NULL CONSTRAINT intent_state CHECK (
        state = 'INTENDED' OR state = 'PRESENT' OR state = 'REFUSED' OR state = 'REMOVING' OR
        state = 'BURNED'
    ),
    token         INTEGER NOT NULL,
    attempts      INTEGER NOT NULL,
    due_at        REAL,
    unknown_since REAL,
    waiting_on    TEXT,
    detail        TEXT,
    PRIMARY KEY (operation, step)
) WITHOUT ROWID;

CREATE TABLE outbox (
    position    INTEGER PRIMARY KEY,
    tenant      TEXT NOT NULL,
    agent       TEXT NOT NULL,
    operation   TEXT NOT NULL,
    type        TEXT NOT NULL,
    at          REAL NOT NULL,
    body        TEXT NOT NULL,
    -- Grows by one for each event of an agent; rows of earlier releases have none.
    sequence    INTEGER
);

CREATE TABLE lease (
    name        TEXT PRIMARY KEY,
    holder      TEXT NOT NULL,
    token       INTEGER NOT NULL,
    until       REAL NOT NULL
) WITHOUT ROWID;

-- The store's own: which changes a transaction applied, and the numbers it gives.
CREATE TABLE batch (
    number      INTEGER PRIMARY KEY,
    changes     TEXT NOT NULL
);

CREATE TABLE counter (
    name        TEXT PRIMARY KEY,
    value       INTEGER NOT NULL
) WITHOUT ROWID;

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
    revoked_at  REAL,
    epoch       INTEGER
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

-- Who wants to hear of what; its secret is sealed.
CREATE TABLE subscription (
    id            TEXT PRIMARY KEY,
    tenant        TEXT NOT NULL,
    principal     TEXT NOT NULL,
    name          TEXT NOT NULL,
    kind          TEXT NOT NULL CONSTRAINT subscription_kind CHECK (
        kind = 'webhook' OR kind = 'nats' OR kind = 'pull'
    ),
    target        TEXT NOT NULL,
    agent         TEXT NOT NULL,
    types         TEXT NOT NULL,
    required      INTEGER NOT NULL,
    secret        TEXT,
    secret_before TEXT,
    before_until  REAL,
    revision      INTEGER NOT NULL,
    created_at    REAL NOT NULL,
    updated_at    REAL NOT NULL
) WITHOUT ROWID;

CREATE INDEX subscription_tenant ON subscription (tenant, id);

-- How far a destination is: what is not beyond it was delivered there, or is a dead letter.
CREATE TABLE cursor (
    destination   TEXT PRIMARY KEY,
    position      INTEGER NOT NULL,
    attempts      INTEGER NOT NULL,
    due_at        REAL NOT NULL,
    why           TEXT NOT NULL,
    since         REAL,
    missed        INTEGER NOT NULL
) WITHOUT ROWID;

-- One agent's stream that a destination does not take, while it takes others.
CREATE TABLE parked (
    destination   TEXT NOT NULL,
    agent         TEXT NOT NULL,
    attempts      INTEGER NOT NULL,
    due_at        REAL,
    why           TEXT NOT NULL,
    since         REAL NOT NULL,
    PRIMARY KEY (destination, agent)
) WITHOUT ROWID;

-- Its events, in order, until they are taken or discarded.
CREATE TABLE letter (
    destination   TEXT NOT NULL,
    agent         TEXT NOT NULL,
    position      INTEGER NOT NULL,
    tenant        TEXT NOT NULL,
    operation     TEXT NOT NULL,
    type          TEXT NOT NULL,
    at            REAL NOT NULL,
    body          TEXT NOT NULL,
    sequence      INTEGER,
    PRIMARY KEY (destination, agent, position)
) WITHOUT ROWID;

-- A required subscriber that an operation waits for, from its acceptance on.
CREATE TABLE awaited (
    operation       TEXT NOT NULL,
    subscription    TEXT NOT NULL,
    tenant          TEXT NOT NULL,
    agent           TEXT NOT NULL,
    since           REAL NOT NULL,
    acknowledged_at REAL,
    principal       TEXT,
    PRIMARY KEY (operation, subscription)
) WITHOUT ROWID;

CREATE INDEX awaited_open ON awaited (tenant) WHERE acknowledged_at IS NULL;

-- What holds for a tenant as a whole; the revision rises when something new is awaited.
CREATE TABLE tenancy (
    tenant        TEXT PRIMARY KEY,
    strict        INTEGER NOT NULL,
    revision      INTEGER NOT NULL
) WITHOUT ROWID;

-- One row for each thing that was seen; `sightings` counts how often, `resolved_at` is when it was so no longer.
CREATE TABLE finding (
    id          TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL,
    reconciler  TEXT NOT NULL,
    kind        TEXT NOT NULL CONSTRAINT finding_kind CHECK (
        kind = 'CONFIRMED' OR kind = 'DRIFT' OR kind = 'UNVERIFIABLE'
    ),
    agent       TEXT NOT NULL,
    resource    TEXT NOT NULL,
    first_seen  REAL NOT NULL,
    last_seen   REAL NOT NULL,
    sightings   INTEGER NOT NULL,
    resolved_at REAL,
    resolved_by TEXT,
    body        TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX finding_tenant ON finding (tenant, id);

CREATE INDEX finding_open ON finding (reconciler, id) WHERE resolved_at IS NULL;

-- What an agent owns or has granted; written in the commit that makes the target.
CREATE TABLE edge (
    owner       TEXT NOT NULL,
    kind        TEXT NOT NULL CONSTRAINT edge_kind CHECK (
        kind = 'agent' OR kind = 'grant' OR kind = 'webhook' OR kind = 'credential' OR
        kind = 'session'
    ),
    target      TEXT NOT NULL,
    tenant      TEXT NOT NULL,
    on_delete   TEXT NOT NULL,
    at          REAL NOT NULL,
    PRIMARY KEY (owner, kind, target)
) WITHOUT ROWID;

CREATE INDEX edge_target ON edge (target, kind, owner);
