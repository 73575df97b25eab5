-- Only adds: events get out, numbered for each agent, subscriptions, how far each destination is, what it waits for.

-- Grows by one for each event of an agent; rows of earlier releases have none.
ALTER TABLE outbox ADD COLUMN sequence BIGINT;

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
