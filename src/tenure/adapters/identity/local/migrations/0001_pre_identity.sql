-- Clients of agents, what they have used up, and the keys that tokens are signed with.

-- One for each resource that is there.  `jwks` holds public keys alone; `jwks_from` says who brought them;
-- tokens of an older `edition` are inactive.
CREATE TABLE client (
    id          TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL,
    agent       TEXT NOT NULL,
    name        TEXT NOT NULL,
    scopes      TEXT NOT NULL,
    audiences   TEXT NOT NULL,
    grants      TEXT NOT NULL,
    jwks        TEXT,
    jwks_from   TEXT NOT NULL CHECK (jwks_from = '' OR jwks_from = 'spec' OR jwks_from = 'registration'),
    asked       TEXT,
    edition     INTEGER NOT NULL,
    made_at     REAL NOT NULL
) WITHOUT ROWID;

-- The one token by which a client's registration may be made or changed now: its hash.
CREATE TABLE permit (
    client      TEXT PRIMARY KEY,
    kind        TEXT NOT NULL CHECK (kind = 'invitation' OR kind = 'registration'),
    hash        TEXT NOT NULL,
    until       REAL NOT NULL
) WITHOUT ROWID;

-- Assertions that were used, until they would have expired.
CREATE TABLE used (
    client      TEXT NOT NULL,
    jti         TEXT NOT NULL,
    until       REAL NOT NULL,
    PRIMARY KEY (client, jti)
) WITHOUT ROWID;

CREATE INDEX used_until ON used (until);

-- Tokens that were revoked, until they would have expired.
CREATE TABLE revoked (
    jti         TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL,
    until       REAL NOT NULL
) WITHOUT ROWID;

CREATE INDEX revoked_until ON revoked (until);

CREATE TABLE epoch (
    tenant      TEXT NOT NULL,
    agent       TEXT NOT NULL,
    epoch       INTEGER NOT NULL,
    closed      INTEGER NOT NULL,
    PRIMARY KEY (tenant, agent)
) WITHOUT ROWID;

-- Private keys are sealed; `until` says how long one that signs no more must still verify.
CREATE TABLE signer (
    kid         TEXT PRIMARY KEY,
    state       TEXT NOT NULL CHECK (state = 'NEXT' OR state = 'CURRENT' OR state = 'PREVIOUS'),
    public      TEXT NOT NULL,
    sealed      TEXT NOT NULL,
    made_at     REAL NOT NULL,
    until       REAL
) WITHOUT ROWID;
