-- Only adds: what reconcilers have seen, and what an agent owns.

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

INSERT INTO edge (owner, kind, target, tenant, on_delete, at)
SELECT parent, 'agent', uid, tenant, 'revoke', coalesce(created_at, 0.0)
FROM agent
WHERE parent IS NOT NULL AND state <> 'DELETED';
