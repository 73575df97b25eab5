PRAGMA page_size=4096;

BEGIN TRANSACTION;

DROP TABLE IF EXISTS agent;
CREATE TABLE agent (
    uid         TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL,
    generation  INTEGER NOT NULL
, name TEXT, state TEXT CONSTRAINT agent_state CHECK (
    state = 'CREATING' OR state = 'CREATE_FAILED' OR state = 'READY' OR state = 'UPDATING' OR
    state = 'UPDATE_FAILED' OR state = 'SUSPENDING' OR state = 'SUSPENDED' OR state = 'RESUMING' OR
    state = 'MIGRATING' OR state = 'DELETING' OR state = 'DELETE_FAILED' OR state = 'DELETED'
), operation TEXT, next TEXT, epoch INTEGER, parent TEXT, spec TEXT, serving TEXT, created_at REAL, updated_at REAL) WITHOUT ROWID;
INSERT INTO agent VALUES('compensating','default',1,NULL,NULL,'01a1e8eba35f7264b102059ed4256df4',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO agent VALUES('done','default',1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO agent VALUES('pending','default',1,NULL,NULL,'01a1e8eba4a973fa85068d4ef3b46968',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO agent VALUES('running','default',1,NULL,NULL,'01a1e8eba352723fbc98f9208dcf6948',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO agent VALUES('stuck','default',1,NULL,NULL,'01a1e8eba36a7c9c9a464b709a64ff7e',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO agent VALUES('waiting','default',1,NULL,NULL,'01a1e8eba3527df19d8396119e81680e',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE INDEX agent_parent ON agent (parent) WHERE parent IS NOT NULL;

DROP TABLE IF EXISTS agent_name;
CREATE TABLE agent_name (
    tenant      TEXT NOT NULL,
    name        TEXT NOT NULL,
    agent       TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID;

DROP TABLE IF EXISTS audit;
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
CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_is_never_shortened BEFORE DELETE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE INDEX audit_tenant ON audit (tenant, position);

DROP TABLE IF EXISTS batch;
CREATE TABLE batch (
    number      INTEGER PRIMARY KEY,
    changes     TEXT NOT NULL
);
INSERT INTO batch VALUES(1,'');
INSERT INTO batch VALUES(2,'');
INSERT INTO batch VALUES(3,'');
INSERT INTO batch VALUES(4,'01a1e8eba3457ec799fd63d127bad785');
INSERT INTO batch VALUES(5,'01a1e8eba3457ec799fd63d127bad785/2/1');
INSERT INTO batch VALUES(6,'01a1e8eba3457ec799fd63d127bad785/3/1');
INSERT INTO batch VALUES(7,'01a1e8eba3457ec799fd63d127bad785/4/1');
INSERT INTO batch VALUES(8,'01a1e8eba3457ec799fd63d127bad785/5/1');
INSERT INTO batch VALUES(9,'01a1e8eba3457ec799fd63d127bad785/6/1');
INSERT INTO batch VALUES(10,'01a1e8eba3457ec799fd63d127bad785/7/1');
INSERT INTO batch VALUES(11,'01a1e8eba352723fbc98f9208dcf6948');
INSERT INTO batch VALUES(12,'01a1e8eba3527df19d8396119e81680e 01a1e8eba352723fbc98f9208dcf6948/2/1');
INSERT INTO batch VALUES(13,'01a1e8eba3527df19d8396119e81680e/2/1 01a1e8eba352723fbc98f9208dcf6948/3/1');
INSERT INTO batch VALUES(14,'01a1e8eba3527df19d8396119e81680e/3/1');
INSERT INTO batch VALUES(15,'01a1e8eba3527df19d8396119e81680e/4/1');
INSERT INTO batch VALUES(16,'');
INSERT INTO batch VALUES(17,'01a1e8eba35f7264b102059ed4256df4');
INSERT INTO batch VALUES(18,'01a1e8eba35f7264b102059ed4256df4/2/1');
INSERT INTO batch VALUES(19,'01a1e8eba35f7264b102059ed4256df4/3/1');
INSERT INTO batch VALUES(20,'01a1e8eba35f7264b102059ed4256df4/4/1');
INSERT INTO batch VALUES(21,'01a1e8eba35f7264b102059ed4256df4/5/1');
INSERT INTO batch VALUES(22,'01a1e8eba35f7264b102059ed4256df4/6/1');
INSERT INTO batch VALUES(23,'01a1e8eba35f7264b102059ed4256df4/7/1');
INSERT INTO batch VALUES(24,'01a1e8eba35f7264b102059ed4256df4/8/1');
INSERT INTO batch VALUES(25,'01a1e8eba36a7c9c9a464b709a64ff7e');
INSERT INTO batch VALUES(26,'01a1e8eba36a7c9c9a464b709a64ff7e/2/1');
INSERT INTO batch VALUES(27,'01a1e8eba36a7c9c9a464b709a64ff7e/3/1');
INSERT INTO batch VALUES(28,'01a1e8eba36a7c9c9a464b709a64ff7e/4/1');
INSERT INTO batch VALUES(29,'01a1e8eba36a7c9c9a464b709a64ff7e/5/1');
INSERT INTO batch VALUES(30,'01a1e8eba36a7c9c9a464b709a64ff7e/6/1');
INSERT INTO batch VALUES(31,'01a1e8eba36a7c9c9a464b709a64ff7e/7/1');
INSERT INTO batch VALUES(32,'01a1e8eba36a7c9c9a464b709a64ff7e/8/1');
INSERT INTO batch VALUES(33,'');
INSERT INTO batch VALUES(34,'');
INSERT INTO batch VALUES(35,'');
INSERT INTO batch VALUES(36,'');
INSERT INTO batch VALUES(37,'');
INSERT INTO batch VALUES(38,'');
INSERT INTO batch VALUES(39,'01a1e8eba36a7c9c9a464b709a64ff7e/9/1');
INSERT INTO batch VALUES(40,'01a1e8eba36a7c9c9a464b709a64ff7e/10/1');
INSERT INTO batch VALUES(41,'01a1e8eba4a973fa85068d4ef3b46968');

DROP TABLE IF EXISTS counter;
CREATE TABLE counter (
    name        TEXT PRIMARY KEY,
    value       INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO counter VALUES('outbox',33);

DROP TABLE IF EXISTS idempotency;
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

DROP TABLE IF EXISTS intent;
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
INSERT INTO intent VALUES('01a1e8eba3457ec799fd63d127bad785','access','default','access','accessb44ec30239a0c2b1254905ba6a36','INTENDED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eba3457ec799fd63d127bad785','approval','default','','rb44ec30239a0c2b125495e2bf7c7','INTENDED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eba3457ec799fd63d127bad785','credentials','default','credentials','credentialsb44ec30239a0c2b12549332a8f79','INTENDED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eba3457ec799fd63d127bad785','exposure','default','exposure','exposureb44ec30239a0c2b12549f02de386','INTENDED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eba3457ec799fd63d127bad785','identity','default','identity','identityb44ec30239a0c2b1254935778e60','INTENDED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eba3457ec799fd63d127bad785','runtime','default','runtime','runtimeb44ec30239a0c2b12549abde9e25','INTENDED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eba352723fbc98f9208dcf6948','access','default','access','access2c51176d1de478a138e905ba6a36','INTENDED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eba352723fbc98f9208dcf6948','identity','default','identity','identity2c51176d1de478a138e935778e60','INTENDED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eba352723fbc98f9208dcf6948','runtime','default','runtime','runtime2c51176d1de478a138e9abde9e25','INTENDED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eba3527df19d8396119e81680e','access','default','access','accessb84ac4ca313f4557277b05ba6a36','INTENDED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eba3527df19d8396119e81680e','approval','default','','rb84ac4ca313f4557277b5e2bf7c7','INTENDED',1,0,NULL,NULL,'1:approved','someone must say so');
INSERT INTO intent VALUES('01a1e8eba3527df19d8396119e81680e','identity','default','identity','identityb84ac4ca313f4557277b35778e60','INTENDED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eba3527df19d8396119e81680e','runtime','default','runtime','runtimeb84ac4ca313f4557277babde9e25','INTENDED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eba35f7264b102059ed4256df4','access','default','access','accessf5b17f8481e93962cb2705ba6a36','BURNED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eba35f7264b102059ed4256df4','approval','default','','rf5b17f8481e93962cb275e2bf7c7','INTENDED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eba35f7264b102059ed4256df4','credentials','default','credentials','credentialsf5b17f8481e93962cb27332a8f79','BURNED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eba35f7264b102059ed4256df4','identity','default','identity','identityf5b17f8481e93962cb2735778e60','REMOVING',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eba35f7264b102059ed4256df4','runtime','default','runtime','runtimef5b17f8481e93962cb27abde9e25','REMOVING',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eba36a7c9c9a464b709a64ff7e','access','default','access','access28a2f36115a08ac5542805ba6a36','BURNED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eba36a7c9c9a464b709a64ff7e','approval','default','','r28a2f36115a08ac554285e2bf7c7','INTENDED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eba36a7c9c9a464b709a64ff7e','credentials','default','credentials','credentials28a2f36115a08ac55428332a8f79','BURNED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eba36a7c9c9a464b709a64ff7e','identity','default','identity','identity28a2f36115a08ac5542835778e60','BURNED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eba36a7c9c9a464b709a64ff7e','runtime','default','runtime','runtime28a2f36115a08ac55428abde9e25','REMOVING',1,7,1794909119.743042,NULL,NULL,'not now');
INSERT INTO intent VALUES('01a1e8eba4a973fa85068d4ef3b46968','identity','default','identity','identitya4315bb20e2427162db235778e60','INTENDED',0,0,0.0,NULL,NULL,NULL);

DROP TABLE IF EXISTS journal;
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
INSERT INTO journal VALUES('01a1e8eba3457ec799fd63d127bad785',1,'default','accepted','',1794909119.3019235,'{}');
INSERT INTO journal VALUES('01a1e8eba3457ec799fd63d127bad785',2,'default','done','identity',1794909119.3041167,'{"file":"identityb44ec30239a0c2b1254935778e60"}');
INSERT INTO journal VALUES('01a1e8eba3457ec799fd63d127bad785',3,'default','done','access',1794909119.3056695,'{"file":"accessb44ec30239a0c2b1254905ba6a36"}');
INSERT INTO journal VALUES('01a1e8eba3457ec799fd63d127bad785',4,'default','done','runtime',1794909119.3069801,'{"file":"runtimeb44ec30239a0c2b12549abde9e25"}');
INSERT INTO journal VALUES('01a1e8eba3457ec799fd63d127bad785',5,'default','done','approval',1794909119.3075006,'{}');
INSERT INTO journal VALUES('01a1e8eba3457ec799fd63d127bad785',6,'default','done','credentials',1794909119.3088205,'{"file":"credentialsb44ec30239a0c2b12549332a8f79"}');
INSERT INTO journal VALUES('01a1e8eba3457ec799fd63d127bad785',7,'default','done','exposure',1794909119.310268,'{"file":"exposureb44ec30239a0c2b12549f02de386"}');
INSERT INTO journal VALUES('01a1e8eba352723fbc98f9208dcf6948',1,'default','accepted','',1794909119.3141403,'{}');
INSERT INTO journal VALUES('01a1e8eba352723fbc98f9208dcf6948',2,'default','done','identity',1794909119.3158689,'{"file":"identity2c51176d1de478a138e935778e60"}');
INSERT INTO journal VALUES('01a1e8eba352723fbc98f9208dcf6948',3,'default','done','runtime',1794909119.3196852,'{"file":"runtime2c51176d1de478a138e9abde9e25"}');
INSERT INTO journal VALUES('01a1e8eba3527df19d8396119e81680e',1,'default','accepted','',1794909119.3148713,'{}');
INSERT INTO journal VALUES('01a1e8eba3527df19d8396119e81680e',2,'default','done','identity',1794909119.3178072,'{"file":"identityb84ac4ca313f4557277b35778e60"}');
INSERT INTO journal VALUES('01a1e8eba3527df19d8396119e81680e',3,'default','done','access',1794909119.3212519,'{"file":"accessb84ac4ca313f4557277b05ba6a36"}');
INSERT INTO journal VALUES('01a1e8eba3527df19d8396119e81680e',4,'default','done','runtime',1794909119.322699,'{"file":"runtimeb84ac4ca313f4557277babde9e25"}');
INSERT INTO journal VALUES('01a1e8eba35f7264b102059ed4256df4',1,'default','accepted','',1794909119.3271494,'{}');
INSERT INTO journal VALUES('01a1e8eba35f7264b102059ed4256df4',2,'default','done','identity',1794909119.3288095,'{"file":"identityf5b17f8481e93962cb2735778e60"}');
INSERT INTO journal VALUES('01a1e8eba35f7264b102059ed4256df4',3,'default','done','access',1794909119.3303263,'{"file":"accessf5b17f8481e93962cb2705ba6a36"}');
INSERT INTO journal VALUES('01a1e8eba35f7264b102059ed4256df4',4,'default','done','runtime',1794909119.3317206,'{"file":"runtimef5b17f8481e93962cb27abde9e25"}');
INSERT INTO journal VALUES('01a1e8eba35f7264b102059ed4256df4',5,'default','done','approval',1794909119.3322573,'{}');
INSERT INTO journal VALUES('01a1e8eba35f7264b102059ed4256df4',6,'default','refused','credentials',1794909119.3336334,'{"why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO journal VALUES('01a1e8eba35f7264b102059ed4256df4',7,'default','undone','credentials',1794909119.3344114,'{}');
INSERT INTO journal VALUES('01a1e8eba35f7264b102059ed4256df4',8,'default','undone','access',1794909119.335876,'{}');
INSERT INTO journal VALUES('01a1e8eba36a7c9c9a464b709a64ff7e',1,'default','accepted','',1794909119.338788,'{}');
INSERT INTO journal VALUES('01a1e8eba36a7c9c9a464b709a64ff7e',2,'default','done','identity',1794909119.3404832,'{"file":"identity28a2f36115a08ac5542835778e60"}');
INSERT INTO journal VALUES('01a1e8eba36a7c9c9a464b709a64ff7e',3,'default','done','access',1794909119.3419766,'{"file":"access28a2f36115a08ac5542805ba6a36"}');
INSERT INTO journal VALUES('01a1e8eba36a7c9c9a464b709a64ff7e',4,'default','done','runtime',1794909119.3435051,'{"file":"runtime28a2f36115a08ac55428abde9e25"}');
INSERT INTO journal VALUES('01a1e8eba36a7c9c9a464b709a64ff7e',5,'default','done','approval',1794909119.3440099,'{}');
INSERT INTO journal VALUES('01a1e8eba36a7c9c9a464b709a64ff7e',6,'default','refused','credentials',1794909119.3452857,'{"why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO journal VALUES('01a1e8eba36a7c9c9a464b709a64ff7e',7,'default','undone','credentials',1794909119.34597,'{}');
INSERT INTO journal VALUES('01a1e8eba36a7c9c9a464b709a64ff7e',8,'default','undone','access',1794909119.3473916,'{}');
INSERT INTO journal VALUES('01a1e8eba36a7c9c9a464b709a64ff7e',9,'default','stuck','runtime',1794909119.64622,'{"why":"the undo of runtime still fails after 0.3 s: not now"}');
INSERT INTO journal VALUES('01a1e8eba36a7c9c9a464b709a64ff7e',10,'default','undone','identity',1794909119.6491146,'{}');
INSERT INTO journal VALUES('01a1e8eba4a973fa85068d4ef3b46968',1,'default','accepted','',1794909119.6572485,'{}');

DROP TABLE IF EXISTS lease;
CREATE TABLE lease (
    name        TEXT PRIMARY KEY,
    holder      TEXT NOT NULL,
    token       INTEGER NOT NULL,
    until       REAL NOT NULL
) WITHOUT ROWID;
INSERT INTO lease VALUES('worker/01a1e8eba3427c459202c420814f1f79','01a1e8eba3427c459202c420814f1f79',1,1794909719.2987833);

DROP TABLE IF EXISTS operation;
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
INSERT INTO operation VALUES('01a1e8eba3457ec799fd63d127bad785','default','local','golden','50fc41f9572dcf98d895534d0b3c4b16','done',1,'SUCCEEDED',7,1,'01a1e8eba3427c459202c420814f1f79',0.0,'{}',NULL,1794909119.3019235,1794909119.310268,1794909119.310268);
INSERT INTO operation VALUES('01a1e8eba352723fbc98f9208dcf6948','default','local','golden','50fc41f9572dcf98d895534d0b3c4b16','running',1,'RUNNING',3,1,'01a1e8eba3427c459202c420814f1f79',0.0,'{"hang":"access"}',NULL,1794909119.3141403,1794909119.3196852,NULL);
INSERT INTO operation VALUES('01a1e8eba3527df19d8396119e81680e','default','local','golden','50fc41f9572dcf98d895534d0b3c4b16','waiting',1,'WAITING',4,1,'01a1e8eba3427c459202c420814f1f79',1794909719.322699,'{"ask":true}',NULL,1794909119.3148713,1794909119.3232064,NULL);
INSERT INTO operation VALUES('01a1e8eba35f7264b102059ed4256df4','default','local','golden','50fc41f9572dcf98d895534d0b3c4b16','compensating',1,'COMPENSATING',8,1,'01a1e8eba3427c459202c420814f1f79',0.0,'{"refuse":"credentials","linger":"runtime"}','credentials was refused: credentials refuses this spec',1794909119.3271494,1794909119.335876,NULL);
INSERT INTO operation VALUES('01a1e8eba36a7c9c9a464b709a64ff7e','default','local','golden','50fc41f9572dcf98d895534d0b3c4b16','stuck',1,'STUCK',10,1,'01a1e8eba3427c459202c420814f1f79',0.0,'{"refuse":"credentials","stick":"runtime"}','credentials was refused: credentials refuses this spec',1794909119.338788,1794909119.6491146,NULL);
INSERT INTO operation VALUES('01a1e8eba4a973fa85068d4ef3b46968','default','local','golden','50fc41f9572dcf98d895534d0b3c4b16','pending',1,'PENDING',1,0,'',0.0,'{}',NULL,1794909119.6572485,1794909119.6572485,NULL);
CREATE INDEX operation_agent ON operation (agent, generation);
CREATE INDEX operation_open ON operation (worker, id) WHERE ended_at IS NULL;
CREATE INDEX operation_tenant ON operation (tenant, id);

DROP TABLE IF EXISTS outbox;
CREATE TABLE outbox (
    position    INTEGER PRIMARY KEY,
    tenant      TEXT NOT NULL,
    agent       TEXT NOT NULL,
    operation   TEXT NOT NULL,
    type        TEXT NOT NULL,
    at          REAL NOT NULL,
    body        TEXT NOT NULL
);
INSERT INTO outbox VALUES(1,'default','done','01a1e8eba3457ec799fd63d127bad785','operation.accepted',1794909119.3019235,'{"kind":"golden","record":"accepted","step":"","state":"RUNNING"}');
INSERT INTO outbox VALUES(2,'default','done','01a1e8eba3457ec799fd63d127bad785','operation.step_done',1794909119.3041167,'{"kind":"golden","record":"done","step":"identity","state":"RUNNING"}');
INSERT INTO outbox VALUES(3,'default','done','01a1e8eba3457ec799fd63d127bad785','operation.step_done',1794909119.3056695,'{"kind":"golden","record":"done","step":"access","state":"RUNNING"}');
INSERT INTO outbox VALUES(4,'default','done','01a1e8eba3457ec799fd63d127bad785','operation.step_done',1794909119.3069801,'{"kind":"golden","record":"done","step":"runtime","state":"RUNNING"}');
INSERT INTO outbox VALUES(5,'default','done','01a1e8eba3457ec799fd63d127bad785','operation.step_done',1794909119.3075006,'{"kind":"golden","record":"done","step":"approval","state":"RUNNING"}');
INSERT INTO outbox VALUES(6,'default','done','01a1e8eba3457ec799fd63d127bad785','operation.step_done',1794909119.3088205,'{"kind":"golden","record":"done","step":"credentials","state":"RUNNING"}');
INSERT INTO outbox VALUES(7,'default','done','01a1e8eba3457ec799fd63d127bad785','operation.succeeded',1794909119.310268,'{"kind":"golden","record":"done","step":"exposure","state":"SUCCEEDED"}');
INSERT INTO outbox VALUES(8,'default','running','01a1e8eba352723fbc98f9208dcf6948','operation.accepted',1794909119.3141403,'{"kind":"golden","record":"accepted","step":"","state":"RUNNING"}');
INSERT INTO outbox VALUES(9,'default','waiting','01a1e8eba3527df19d8396119e81680e','operation.accepted',1794909119.3148713,'{"kind":"golden","record":"accepted","step":"","state":"RUNNING"}');
INSERT INTO outbox VALUES(10,'default','running','01a1e8eba352723fbc98f9208dcf6948','operation.step_done',1794909119.3158689,'{"kind":"golden","record":"done","step":"identity","state":"RUNNING"}');
INSERT INTO outbox VALUES(11,'default','waiting','01a1e8eba3527df19d8396119e81680e','operation.step_done',1794909119.3178072,'{"kind":"golden","record":"done","step":"identity","state":"RUNNING"}');
INSERT INTO outbox VALUES(12,'default','running','01a1e8eba352723fbc98f9208dcf6948','operation.step_done',1794909119.3196852,'{"kind":"golden","record":"done","step":"runtime","state":"RUNNING"}');
INSERT INTO outbox VALUES(13,'default','waiting','01a1e8eba3527df19d8396119e81680e','operation.step_done',1794909119.3212519,'{"kind":"golden","record":"done","step":"access","state":"RUNNING"}');
INSERT INTO outbox VALUES(14,'default','waiting','01a1e8eba3527df19d8396119e81680e','operation.step_done',1794909119.322699,'{"kind":"golden","record":"done","step":"runtime","state":"RUNNING"}');
INSERT INTO outbox VALUES(15,'default','compensating','01a1e8eba35f7264b102059ed4256df4','operation.accepted',1794909119.3271494,'{"kind":"golden","record":"accepted","step":"","state":"RUNNING"}');
INSERT INTO outbox VALUES(16,'default','compensating','01a1e8eba35f7264b102059ed4256df4','operation.step_done',1794909119.3288095,'{"kind":"golden","record":"done","step":"identity","state":"RUNNING"}');
INSERT INTO outbox VALUES(17,'default','compensating','01a1e8eba35f7264b102059ed4256df4','operation.step_done',1794909119.3303263,'{"kind":"golden","record":"done","step":"access","state":"RUNNING"}');
INSERT INTO outbox VALUES(18,'default','compensating','01a1e8eba35f7264b102059ed4256df4','operation.step_done',1794909119.3317206,'{"kind":"golden","record":"done","step":"runtime","state":"RUNNING"}');
INSERT INTO outbox VALUES(19,'default','compensating','01a1e8eba35f7264b102059ed4256df4','operation.step_done',1794909119.3322573,'{"kind":"golden","record":"done","step":"approval","state":"RUNNING"}');
INSERT INTO outbox VALUES(20,'default','compensating','01a1e8eba35f7264b102059ed4256df4','operation.compensating',1794909119.3336334,'{"kind":"golden","record":"refused","step":"credentials","state":"COMPENSATING","why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO outbox VALUES(21,'default','compensating','01a1e8eba35f7264b102059ed4256df4','operation.step_undone',1794909119.3344114,'{"kind":"golden","record":"undone","step":"credentials","state":"COMPENSATING","why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO outbox VALUES(22,'default','compensating','01a1e8eba35f7264b102059ed4256df4','operation.step_undone',1794909119.335876,'{"kind":"golden","record":"undone","step":"access","state":"COMPENSATING","why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO outbox VALUES(23,'default','stuck','01a1e8eba36a7c9c9a464b709a64ff7e','operation.accepted',1794909119.338788,'{"kind":"golden","record":"accepted","step":"","state":"RUNNING"}');
INSERT INTO outbox VALUES(24,'default','stuck','01a1e8eba36a7c9c9a464b709a64ff7e','operation.step_done',1794909119.3404832,'{"kind":"golden","record":"done","step":"identity","state":"RUNNING"}');
INSERT INTO outbox VALUES(25,'default','stuck','01a1e8eba36a7c9c9a464b709a64ff7e','operation.step_done',1794909119.3419766,'{"kind":"golden","record":"done","step":"access","state":"RUNNING"}');
INSERT INTO outbox VALUES(26,'default','stuck','01a1e8eba36a7c9c9a464b709a64ff7e','operation.step_done',1794909119.3435051,'{"kind":"golden","record":"done","step":"runtime","state":"RUNNING"}');
INSERT INTO outbox VALUES(27,'default','stuck','01a1e8eba36a7c9c9a464b709a64ff7e','operation.step_done',1794909119.3440099,'{"kind":"golden","record":"done","step":"approval","state":"RUNNING"}');
INSERT INTO outbox VALUES(28,'default','stuck','01a1e8eba36a7c9c9a464b709a64ff7e','operation.compensating',1794909119.3452857,'{"kind":"golden","record":"refused","step":"credentials","state":"COMPENSATING","why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO outbox VALUES(29,'default','stuck','01a1e8eba36a7c9c9a464b709a64ff7e','operation.step_undone',1794909119.34597,'{"kind":"golden","record":"undone","step":"credentials","state":"COMPENSATING","why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO outbox VALUES(30,'default','stuck','01a1e8eba36a7c9c9a464b709a64ff7e','operation.step_undone',1794909119.3473916,'{"kind":"golden","record":"undone","step":"access","state":"COMPENSATING","why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO outbox VALUES(31,'default','stuck','01a1e8eba36a7c9c9a464b709a64ff7e','operation.stuck',1794909119.64622,'{"kind":"golden","record":"stuck","step":"runtime","state":"STUCK","why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO outbox VALUES(32,'default','stuck','01a1e8eba36a7c9c9a464b709a64ff7e','operation.step_undone',1794909119.6491146,'{"kind":"golden","record":"undone","step":"identity","state":"STUCK","why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO outbox VALUES(33,'default','pending','01a1e8eba4a973fa85068d4ef3b46968','operation.accepted',1794909119.6572485,'{"kind":"golden","record":"accepted","step":"","state":"PENDING"}');

DROP TABLE IF EXISTS "plan";
CREATE TABLE plan (
    digest      TEXT PRIMARY KEY,
    name        TEXT NOT NULL,
    version     INTEGER NOT NULL,
    body        TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "plan" VALUES('50fc41f9572dcf98d895534d0b3c4b16','golden',1,'{"name":"golden","stages":[[{"inspect":"ask","kind":"compensatable","limits":{"call_seconds":30.0,"deadline_seconds":600.0,"retry_cap_seconds":0.1,"retry_first_seconds":0.02,"undo_seconds":0.3,"visible_seconds":0.0},"name":"identity","needs":[],"slot":"identity","undo":"call"}],[{"inspect":"ask","kind":"compensatable","limits":{"call_seconds":30.0,"deadline_seconds":600.0,"retry_cap_seconds":0.1,"retry_first_seconds":0.02,"undo_seconds":0.3,"visible_seconds":0.0},"name":"access","needs":[],"slot":"access","undo":"call"},{"inspect":"ask","kind":"compensatable","limits":{"call_seconds":30.0,"deadline_seconds":600.0,"retry_cap_seconds":0.1,"retry_first_seconds":0.02,"undo_seconds":0.3,"visible_seconds":0.0},"name":"runtime","needs":[],"slot":"runtime","undo":"call"}],[{"inspect":"repeat","kind":"compensatable","limits":{"call_seconds":30.0,"deadline_seconds":600.0,"retry_cap_seconds":0.1,"retry_first_seconds":0.02,"undo_seconds":0.3,"visible_seconds":0.0},"name":"approval","needs":[],"slot":"","undo":"nothing"}],[{"inspect":"ask","kind":"compensatable","limits":{"call_seconds":30.0,"deadline_seconds":600.0,"retry_cap_seconds":0.1,"retry_first_seconds":0.02,"undo_seconds":0.3,"visible_seconds":0.0},"name":"credentials","needs":[],"slot":"credentials","undo":"call"}],[{"inspect":"ask","kind":"pivot","limits":{"call_seconds":30.0,"deadline_seconds":600.0,"retry_cap_seconds":0.1,"retry_first_seconds":0.02,"undo_seconds":0.3,"visible_seconds":0.0},"name":"exposure","needs":[],"slot":"exposure","undo":""}]],"version":1}');

DROP TABLE IF EXISTS plane;
CREATE TABLE plane (
    one         TEXT PRIMARY KEY,
    name        TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO plane VALUES('this','local');

DROP TABLE IF EXISTS quota;
CREATE TABLE quota (
    tenant      TEXT NOT NULL,
    kind        TEXT NOT NULL,
    most        INTEGER NOT NULL,
    revision    INTEGER NOT NULL,
    PRIMARY KEY (tenant, kind)
) WITHOUT ROWID;

DROP TABLE IF EXISTS reservation;
CREATE TABLE reservation (
    tenant      TEXT NOT NULL,
    kind        TEXT NOT NULL,
    agent       TEXT NOT NULL,
    operation   TEXT NOT NULL,
    at          REAL NOT NULL,
    PRIMARY KEY (tenant, kind, agent)
) WITHOUT ROWID;

DROP TABLE IF EXISTS token;
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
    revoked_at  REAL
) WITHOUT ROWID;
CREATE INDEX token_tenant ON token (tenant, id);

DROP TABLE IF EXISTS tombstone;
CREATE TABLE tombstone (
    operation   TEXT NOT NULL,
    step        TEXT NOT NULL,
    until       REAL NOT NULL,
    sightings   INTEGER NOT NULL,
    PRIMARY KEY (operation, step)
) WITHOUT ROWID;


COMMIT TRANSACTION;
PRAGMA application_id=1416525170;
PRAGMA user_version=2;
