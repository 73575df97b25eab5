-- What agents may ask for, by agent (a uid, which grows with time), and which agents are closed.

CREATE TABLE registration (
    agent       TEXT NOT NULL,
    key         TEXT NOT NULL,
    audience    TEXT NOT NULL,
    tenant      TEXT NOT NULL,
    scopes      TEXT NOT NULL,
    ttl_seconds INTEGER NOT NULL CONSTRAINT registration_ttl CHECK (
        ttl_seconds >= 1 AND ttl_seconds <= 900
    ),
    at          REAL NOT NULL,
    PRIMARY KEY (agent, key, audience)
) WITHOUT ROWID;

-- Outlives the agent's registrations: a closing that comes first closes what arrives later.
CREATE TABLE closing (
    agent       TEXT NOT NULL,
    tenant      TEXT NOT NULL,
    epoch       INTEGER NOT NULL,
    closed      INTEGER NOT NULL,
    at          REAL NOT NULL,
    PRIMARY KEY (agent, tenant)
) WITHOUT ROWID;
