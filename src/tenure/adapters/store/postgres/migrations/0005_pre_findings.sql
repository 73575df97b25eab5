-- Only adds: what reconcilers have seen, and what an agent owns.

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
