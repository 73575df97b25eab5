-- The first migration of every provider's file: its resources by key, and what the committer keeps.
-- A table with row ids, since keys are scattered: rows go to the end, and only the index of keys is written all over.

CREATE TABLE resource (
    key         TEXT PRIMARY KEY NOT NULL,
    plane       TEXT NOT NULL,
    tenant      TEXT NOT NULL,
    agent       TEXT NOT NULL,
    generation  INTEGER NOT NULL,
    slot        TEXT NOT NULL,
    name        TEXT NOT NULL,
    state       TEXT NOT NULL CONSTRAINT resource_state CHECK (
        state = 'PRESENT' OR state = 'BURNED'
    ),
    revision    INTEGER NOT NULL,
    spec        TEXT NOT NULL,
    reference   TEXT NOT NULL,
    since       REAL NOT NULL
);

CREATE INDEX resource_owned ON resource (plane) WHERE state = 'PRESENT';

CREATE TABLE batch (
    number      INTEGER PRIMARY KEY,
    changes     TEXT NOT NULL
);

CREATE TABLE counter (
    name        TEXT PRIMARY KEY,
    value       INTEGER NOT NULL
) WITHOUT ROWID;
