-- Events get out: numbered for each agent, subscriptions, how far each destination is, what it waits for.

-- Grows by one for each event of an agent; rows of earlier releases have none.
ALTER TABLE outbox ADD COLUMN sequence INTEGER;

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
