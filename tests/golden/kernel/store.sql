PRAGMA page_size=4096;

BEGIN TRANSACTION;

DROP TABLE IF EXISTS active;
CREATE TABLE active (
    agent       TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL,
    operation   TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO active VALUES('compensating','default','01a1e8eb9f91715e9846f0251612742c');
INSERT INTO active VALUES('pending','default','01a1e8eba0e778caa697509049bbe891');
INSERT INTO active VALUES('running','default','01a1e8eb9f837405b87f6530d72ad498');
INSERT INTO active VALUES('stuck','default','01a1e8eb9fa17161a3851d53863d0630');
INSERT INTO active VALUES('waiting','default','01a1e8eb9f837fb2a3188ed0eab0ee50');

DROP TABLE IF EXISTS agent;
CREATE TABLE agent (
    uid         TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL,
    generation  INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO agent VALUES('compensating','default',1);
INSERT INTO agent VALUES('done','default',1);
INSERT INTO agent VALUES('pending','default',1);
INSERT INTO agent VALUES('running','default',1);
INSERT INTO agent VALUES('stuck','default',1);
INSERT INTO agent VALUES('waiting','default',1);

DROP TABLE IF EXISTS batch;
CREATE TABLE batch (
    number      INTEGER PRIMARY KEY,
    changes     TEXT NOT NULL
);
INSERT INTO batch VALUES(1,'');
INSERT INTO batch VALUES(2,'');
INSERT INTO batch VALUES(3,'');
INSERT INTO batch VALUES(4,'01a1e8eb9f777c85aa300d88de698cfc');
INSERT INTO batch VALUES(5,'01a1e8eb9f777c85aa300d88de698cfc/2/1');
INSERT INTO batch VALUES(6,'01a1e8eb9f777c85aa300d88de698cfc/3/1');
INSERT INTO batch VALUES(7,'01a1e8eb9f777c85aa300d88de698cfc/4/1');
INSERT INTO batch VALUES(8,'01a1e8eb9f777c85aa300d88de698cfc/5/1');
INSERT INTO batch VALUES(9,'01a1e8eb9f777c85aa300d88de698cfc/6/1');
INSERT INTO batch VALUES(10,'01a1e8eb9f777c85aa300d88de698cfc/7/1');
INSERT INTO batch VALUES(11,'01a1e8eb9f837405b87f6530d72ad498');
INSERT INTO batch VALUES(12,'01a1e8eb9f837fb2a3188ed0eab0ee50 01a1e8eb9f837405b87f6530d72ad498/2/1');
INSERT INTO batch VALUES(13,'01a1e8eb9f837fb2a3188ed0eab0ee50/2/1 01a1e8eb9f837405b87f6530d72ad498/3/1');
INSERT INTO batch VALUES(14,'01a1e8eb9f837fb2a3188ed0eab0ee50/3/1');
INSERT INTO batch VALUES(15,'01a1e8eb9f837fb2a3188ed0eab0ee50/4/1');
INSERT INTO batch VALUES(16,'');
INSERT INTO batch VALUES(17,'01a1e8eb9f91715e9846f0251612742c');
INSERT INTO batch VALUES(18,'01a1e8eb9f91715e9846f0251612742c/2/1');
INSERT INTO batch VALUES(19,'01a1e8eb9f91715e9846f0251612742c/3/1');
INSERT INTO batch VALUES(20,'01a1e8eb9f91715e9846f0251612742c/4/1');
INSERT INTO batch VALUES(21,'01a1e8eb9f91715e9846f0251612742c/5/1');
INSERT INTO batch VALUES(22,'01a1e8eb9f91715e9846f0251612742c/6/1');
INSERT INTO batch VALUES(23,'01a1e8eb9fa17161a3851d53863d0630');
INSERT INTO batch VALUES(24,'01a1e8eb9f91715e9846f0251612742c/7/1');
INSERT INTO batch VALUES(25,'01a1e8eb9fa17161a3851d53863d0630/2/1');
INSERT INTO batch VALUES(26,'01a1e8eb9f91715e9846f0251612742c/8/1');
INSERT INTO batch VALUES(27,'01a1e8eb9fa17161a3851d53863d0630/3/1');
INSERT INTO batch VALUES(28,'01a1e8eb9fa17161a3851d53863d0630/4/1');
INSERT INTO batch VALUES(29,'01a1e8eb9fa17161a3851d53863d0630/5/1');
INSERT INTO batch VALUES(30,'01a1e8eb9fa17161a3851d53863d0630/6/1');
INSERT INTO batch VALUES(31,'01a1e8eb9fa17161a3851d53863d0630/7/1');
INSERT INTO batch VALUES(32,'01a1e8eb9fa17161a3851d53863d0630/8/1');
INSERT INTO batch VALUES(33,'');
INSERT INTO batch VALUES(34,'');
INSERT INTO batch VALUES(35,'');
INSERT INTO batch VALUES(36,'');
INSERT INTO batch VALUES(37,'');
INSERT INTO batch VALUES(38,'');
INSERT INTO batch VALUES(39,'01a1e8eb9fa17161a3851d53863d0630/9/1');
INSERT INTO batch VALUES(40,'01a1e8eb9fa17161a3851d53863d0630/10/1');
INSERT INTO batch VALUES(41,'01a1e8eba0e778caa697509049bbe891');

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
INSERT INTO intent VALUES('01a1e8eb9f777c85aa300d88de698cfc','access','default','access','accessb44ec30239a0c2b1254905ba6a36','PRESENT',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eb9f777c85aa300d88de698cfc','approval','default','','rb44ec30239a0c2b125495e2bf7c7','PRESENT',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eb9f777c85aa300d88de698cfc','credentials','default','credentials','credentialsb44ec30239a0c2b12549332a8f79','PRESENT',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eb9f777c85aa300d88de698cfc','exposure','default','exposure','exposureb44ec30239a0c2b12549f02de386','PRESENT',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eb9f777c85aa300d88de698cfc','identity','default','identity','identityb44ec30239a0c2b1254935778e60','PRESENT',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eb9f777c85aa300d88de698cfc','runtime','default','runtime','runtimeb44ec30239a0c2b12549abde9e25','PRESENT',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eb9f837405b87f6530d72ad498','access','default','access','access2c51176d1de478a138e905ba6a36','INTENDED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eb9f837405b87f6530d72ad498','identity','default','identity','identity2c51176d1de478a138e935778e60','PRESENT',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eb9f837405b87f6530d72ad498','runtime','default','runtime','runtime2c51176d1de478a138e9abde9e25','PRESENT',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eb9f837fb2a3188ed0eab0ee50','access','default','access','accessb84ac4ca313f4557277b05ba6a36','PRESENT',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eb9f837fb2a3188ed0eab0ee50','approval','default','','rb84ac4ca313f4557277b5e2bf7c7','INTENDED',1,0,NULL,NULL,'1:approved','someone must say so');
INSERT INTO intent VALUES('01a1e8eb9f837fb2a3188ed0eab0ee50','identity','default','identity','identityb84ac4ca313f4557277b35778e60','PRESENT',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eb9f837fb2a3188ed0eab0ee50','runtime','default','runtime','runtimeb84ac4ca313f4557277babde9e25','PRESENT',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eb9f91715e9846f0251612742c','access','default','access','accessf5b17f8481e93962cb2705ba6a36','BURNED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eb9f91715e9846f0251612742c','approval','default','','rf5b17f8481e93962cb275e2bf7c7','PRESENT',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eb9f91715e9846f0251612742c','credentials','default','credentials','credentialsf5b17f8481e93962cb27332a8f79','BURNED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eb9f91715e9846f0251612742c','identity','default','identity','identityf5b17f8481e93962cb2735778e60','REMOVING',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eb9f91715e9846f0251612742c','runtime','default','runtime','runtimef5b17f8481e93962cb27abde9e25','REMOVING',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eb9fa17161a3851d53863d0630','access','default','access','access28a2f36115a08ac5542805ba6a36','BURNED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eb9fa17161a3851d53863d0630','approval','default','','r28a2f36115a08ac554285e2bf7c7','PRESENT',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eb9fa17161a3851d53863d0630','credentials','default','credentials','credentials28a2f36115a08ac55428332a8f79','BURNED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eb9fa17161a3851d53863d0630','identity','default','identity','identity28a2f36115a08ac5542835778e60','BURNED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8eb9fa17161a3851d53863d0630','runtime','default','runtime','runtime28a2f36115a08ac55428abde9e25','REMOVING',1,7,1794909118.765739,NULL,NULL,'not now');
INSERT INTO intent VALUES('01a1e8eba0e778caa697509049bbe891','identity','default','identity','identitya4315bb20e2427162db235778e60','INTENDED',0,0,0.0,NULL,NULL,NULL);

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
INSERT INTO journal VALUES('01a1e8eb9f777c85aa300d88de698cfc',1,'default','accepted','',1794909118.3277824,'{}');
INSERT INTO journal VALUES('01a1e8eb9f777c85aa300d88de698cfc',2,'default','done','identity',1794909118.3299162,'{"file":"identityb44ec30239a0c2b1254935778e60"}');
INSERT INTO journal VALUES('01a1e8eb9f777c85aa300d88de698cfc',3,'default','done','access',1794909118.3315043,'{"file":"accessb44ec30239a0c2b1254905ba6a36"}');
INSERT INTO journal VALUES('01a1e8eb9f777c85aa300d88de698cfc',4,'default','done','runtime',1794909118.3328996,'{"file":"runtimeb44ec30239a0c2b12549abde9e25"}');
INSERT INTO journal VALUES('01a1e8eb9f777c85aa300d88de698cfc',5,'default','done','approval',1794909118.333437,'{}');
INSERT INTO journal VALUES('01a1e8eb9f777c85aa300d88de698cfc',6,'default','done','credentials',1794909118.3348913,'{"file":"credentialsb44ec30239a0c2b12549332a8f79"}');
INSERT INTO journal VALUES('01a1e8eb9f777c85aa300d88de698cfc',7,'default','done','exposure',1794909118.3362968,'{"file":"exposureb44ec30239a0c2b12549f02de386"}');
INSERT INTO journal VALUES('01a1e8eb9f837405b87f6530d72ad498',1,'default','accepted','',1794909118.3392513,'{}');
INSERT INTO journal VALUES('01a1e8eb9f837405b87f6530d72ad498',2,'default','done','identity',1794909118.3409467,'{"file":"identity2c51176d1de478a138e935778e60"}');
INSERT INTO journal VALUES('01a1e8eb9f837405b87f6530d72ad498',3,'default','done','runtime',1794909118.3446877,'{"file":"runtime2c51176d1de478a138e9abde9e25"}');
INSERT INTO journal VALUES('01a1e8eb9f837fb2a3188ed0eab0ee50',1,'default','accepted','',1794909118.339981,'{}');
INSERT INTO journal VALUES('01a1e8eb9f837fb2a3188ed0eab0ee50',2,'default','done','identity',1794909118.3428605,'{"file":"identityb84ac4ca313f4557277b35778e60"}');
INSERT INTO journal VALUES('01a1e8eb9f837fb2a3188ed0eab0ee50',3,'default','done','access',1794909118.3461897,'{"file":"accessb84ac4ca313f4557277b05ba6a36"}');
INSERT INTO journal VALUES('01a1e8eb9f837fb2a3188ed0eab0ee50',4,'default','done','runtime',1794909118.3475983,'{"file":"runtimeb84ac4ca313f4557277babde9e25"}');
INSERT INTO journal VALUES('01a1e8eb9f91715e9846f0251612742c',1,'default','accepted','',1794909118.3530855,'{}');
INSERT INTO journal VALUES('01a1e8eb9f91715e9846f0251612742c',2,'default','done','identity',1794909118.3598971,'{"file":"identityf5b17f8481e93962cb2735778e60"}');
INSERT INTO journal VALUES('01a1e8eb9f91715e9846f0251612742c',3,'default','done','access',1794909118.3621972,'{"file":"accessf5b17f8481e93962cb2705ba6a36"}');
INSERT INTO journal VALUES('01a1e8eb9f91715e9846f0251612742c',4,'default','done','runtime',1794909118.365769,'{"file":"runtimef5b17f8481e93962cb27abde9e25"}');
INSERT INTO journal VALUES('01a1e8eb9f91715e9846f0251612742c',5,'default','done','approval',1794909118.3663921,'{}');
INSERT INTO journal VALUES('01a1e8eb9f91715e9846f0251612742c',6,'default','refused','credentials',1794909118.3678253,'{"why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO journal VALUES('01a1e8eb9f91715e9846f0251612742c',7,'default','undone','credentials',1794909118.3695757,'{}');
INSERT INTO journal VALUES('01a1e8eb9f91715e9846f0251612742c',8,'default','undone','access',1794909118.3789415,'{}');
INSERT INTO journal VALUES('01a1e8eb9fa17161a3851d53863d0630',1,'default','accepted','',1794909118.3690863,'{}');
INSERT INTO journal VALUES('01a1e8eb9fa17161a3851d53863d0630',2,'default','done','identity',1794909118.3725781,'{"file":"identity28a2f36115a08ac5542835778e60"}');
INSERT INTO journal VALUES('01a1e8eb9fa17161a3851d53863d0630',3,'default','done','access',1794909118.3805108,'{"file":"access28a2f36115a08ac5542805ba6a36"}');
INSERT INTO journal VALUES('01a1e8eb9fa17161a3851d53863d0630',4,'default','done','runtime',1794909118.3831184,'{"file":"runtime28a2f36115a08ac55428abde9e25"}');
INSERT INTO journal VALUES('01a1e8eb9fa17161a3851d53863d0630',5,'default','done','approval',1794909118.3843503,'{}');
INSERT INTO journal VALUES('01a1e8eb9fa17161a3851d53863d0630',6,'default','refused','credentials',1794909118.386262,'{"why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO journal VALUES('01a1e8eb9fa17161a3851d53863d0630',7,'default','undone','credentials',1794909118.387007,'{}');
INSERT INTO journal VALUES('01a1e8eb9fa17161a3851d53863d0630',8,'default','undone','access',1794909118.3885949,'{}');
INSERT INTO journal VALUES('01a1e8eb9fa17161a3851d53863d0630',9,'default','stuck','runtime',1794909118.686844,'{"why":"the undo of runtime still fails after 0.3 s: not now"}');
INSERT INTO journal VALUES('01a1e8eb9fa17161a3851d53863d0630',10,'default','undone','identity',1794909118.689268,'{}');
INSERT INTO journal VALUES('01a1e8eba0e778caa697509049bbe891',1,'default','accepted','',1794909118.6955492,'{}');

DROP TABLE IF EXISTS lease;
CREATE TABLE lease (
    name        TEXT PRIMARY KEY,
    holder      TEXT NOT NULL,
    token       INTEGER NOT NULL,
    until       REAL NOT NULL
) WITHOUT ROWID;
INSERT INTO lease VALUES('worker/01a1e8eb9f7772f9848b36cefea671d2','01a1e8eb9f7772f9848b36cefea671d2',1,1794909718.3272014);

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
INSERT INTO operation VALUES('01a1e8eb9f777c85aa300d88de698cfc','default','local','golden','50fc41f9572dcf98d895534d0b3c4b16','done',1,'SUCCEEDED',7,1,'01a1e8eb9f7772f9848b36cefea671d2',0.0,'{}',NULL,1794909118.3277824,1794909118.3362968,1794909118.3362968);
INSERT INTO operation VALUES('01a1e8eb9f837405b87f6530d72ad498','default','local','golden','50fc41f9572dcf98d895534d0b3c4b16','running',1,'RUNNING',3,1,'01a1e8eb9f7772f9848b36cefea671d2',0.0,'{"hang":"access"}',NULL,1794909118.3392513,1794909118.3446877,NULL);
INSERT INTO operation VALUES('01a1e8eb9f837fb2a3188ed0eab0ee50','default','local','golden','50fc41f9572dcf98d895534d0b3c4b16','waiting',1,'WAITING',4,1,'01a1e8eb9f7772f9848b36cefea671d2',1794909718.3475983,'{"ask":true}',NULL,1794909118.339981,1794909118.348101,NULL);
INSERT INTO operation VALUES('01a1e8eb9f91715e9846f0251612742c','default','local','golden','50fc41f9572dcf98d895534d0b3c4b16','compensating',1,'COMPENSATING',8,1,'01a1e8eb9f7772f9848b36cefea671d2',0.0,'{"refuse":"credentials","linger":"runtime"}','credentials was refused: credentials refuses this spec',1794909118.3530855,1794909118.3789415,NULL);
INSERT INTO operation VALUES('01a1e8eb9fa17161a3851d53863d0630','default','local','golden','50fc41f9572dcf98d895534d0b3c4b16','stuck',1,'STUCK',10,1,'01a1e8eb9f7772f9848b36cefea671d2',0.0,'{"refuse":"credentials","stick":"runtime"}','credentials was refused: credentials refuses this spec',1794909118.3690863,1794909118.689268,NULL);
INSERT INTO operation VALUES('01a1e8eba0e778caa697509049bbe891','default','local','golden','50fc41f9572dcf98d895534d0b3c4b16','pending',1,'PENDING',1,0,'',0.0,'{}',NULL,1794909118.6955492,1794909118.6955492,NULL);
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
INSERT INTO outbox VALUES(1,'default','done','01a1e8eb9f777c85aa300d88de698cfc','operation.accepted',1794909118.3277824,'{"kind":"golden","record":"accepted","step":"","state":"RUNNING"}');
INSERT INTO outbox VALUES(2,'default','done','01a1e8eb9f777c85aa300d88de698cfc','operation.step_done',1794909118.3299162,'{"kind":"golden","record":"done","step":"identity","state":"RUNNING"}');
INSERT INTO outbox VALUES(3,'default','done','01a1e8eb9f777c85aa300d88de698cfc','operation.step_done',1794909118.3315043,'{"kind":"golden","record":"done","step":"access","state":"RUNNING"}');
INSERT INTO outbox VALUES(4,'default','done','01a1e8eb9f777c85aa300d88de698cfc','operation.step_done',1794909118.3328996,'{"kind":"golden","record":"done","step":"runtime","state":"RUNNING"}');
INSERT INTO outbox VALUES(5,'default','done','01a1e8eb9f777c85aa300d88de698cfc','operation.step_done',1794909118.333437,'{"kind":"golden","record":"done","step":"approval","state":"RUNNING"}');
INSERT INTO outbox VALUES(6,'default','done','01a1e8eb9f777c85aa300d88de698cfc','operation.step_done',1794909118.3348913,'{"kind":"golden","record":"done","step":"credentials","state":"RUNNING"}');
INSERT INTO outbox VALUES(7,'default','done','01a1e8eb9f777c85aa300d88de698cfc','operation.succeeded',1794909118.3362968,'{"kind":"golden","record":"done","step":"exposure","state":"SUCCEEDED"}');
INSERT INTO outbox VALUES(8,'default','running','01a1e8eb9f837405b87f6530d72ad498','operation.accepted',1794909118.3392513,'{"kind":"golden","record":"accepted","step":"","state":"RUNNING"}');
INSERT INTO outbox VALUES(9,'default','waiting','01a1e8eb9f837fb2a3188ed0eab0ee50','operation.accepted',1794909118.339981,'{"kind":"golden","record":"accepted","step":"","state":"RUNNING"}');
INSERT INTO outbox VALUES(10,'default','running','01a1e8eb9f837405b87f6530d72ad498','operation.step_done',1794909118.3409467,'{"kind":"golden","record":"done","step":"identity","state":"RUNNING"}');
INSERT INTO outbox VALUES(11,'default','waiting','01a1e8eb9f837fb2a3188ed0eab0ee50','operation.step_done',1794909118.3428605,'{"kind":"golden","record":"done","step":"identity","state":"RUNNING"}');
INSERT INTO outbox VALUES(12,'default','running','01a1e8eb9f837405b87f6530d72ad498','operation.step_done',1794909118.3446877,'{"kind":"golden","record":"done","step":"runtime","state":"RUNNING"}');
INSERT INTO outbox VALUES(13,'default','waiting','01a1e8eb9f837fb2a3188ed0eab0ee50','operation.step_done',1794909118.3461897,'{"kind":"golden","record":"done","step":"access","state":"RUNNING"}');
INSERT INTO outbox VALUES(14,'default','waiting','01a1e8eb9f837fb2a3188ed0eab0ee50','operation.step_done',1794909118.3475983,'{"kind":"golden","record":"done","step":"runtime","state":"RUNNING"}');
INSERT INTO outbox VALUES(15,'default','compensating','01a1e8eb9f91715e9846f0251612742c','operation.accepted',1794909118.3530855,'{"kind":"golden","record":"accepted","step":"","state":"RUNNING"}');
INSERT INTO outbox VALUES(16,'default','compensating','01a1e8eb9f91715e9846f0251612742c','operation.step_done',1794909118.3598971,'{"kind":"golden","record":"done","step":"identity","state":"RUNNING"}');
INSERT INTO outbox VALUES(17,'default','compensating','01a1e8eb9f91715e9846f0251612742c','operation.step_done',1794909118.3621972,'{"kind":"golden","record":"done","step":"access","state":"RUNNING"}');
INSERT INTO outbox VALUES(18,'default','compensating','01a1e8eb9f91715e9846f0251612742c','operation.step_done',1794909118.365769,'{"kind":"golden","record":"done","step":"runtime","state":"RUNNING"}');
INSERT INTO outbox VALUES(19,'default','compensating','01a1e8eb9f91715e9846f0251612742c','operation.step_done',1794909118.3663921,'{"kind":"golden","record":"done","step":"approval","state":"RUNNING"}');
INSERT INTO outbox VALUES(20,'default','compensating','01a1e8eb9f91715e9846f0251612742c','operation.compensating',1794909118.3678253,'{"kind":"golden","record":"refused","step":"credentials","state":"COMPENSATING","why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO outbox VALUES(21,'default','stuck','01a1e8eb9fa17161a3851d53863d0630','operation.accepted',1794909118.3690863,'{"kind":"golden","record":"accepted","step":"","state":"RUNNING"}');
INSERT INTO outbox VALUES(22,'default','compensating','01a1e8eb9f91715e9846f0251612742c','operation.step_undone',1794909118.3695757,'{"kind":"golden","record":"undone","step":"credentials","state":"COMPENSATING","why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO outbox VALUES(23,'default','stuck','01a1e8eb9fa17161a3851d53863d0630','operation.step_done',1794909118.3725781,'{"kind":"golden","record":"done","step":"identity","state":"RUNNING"}');
INSERT INTO outbox VALUES(24,'default','compensating','01a1e8eb9f91715e9846f0251612742c','operation.step_undone',1794909118.3789415,'{"kind":"golden","record":"undone","step":"access","state":"COMPENSATING","why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO outbox VALUES(25,'default','stuck','01a1e8eb9fa17161a3851d53863d0630','operation.step_done',1794909118.3805108,'{"kind":"golden","record":"done","step":"access","state":"RUNNING"}');
INSERT INTO outbox VALUES(26,'default','stuck','01a1e8eb9fa17161a3851d53863d0630','operation.step_done',1794909118.3831184,'{"kind":"golden","record":"done","step":"runtime","state":"RUNNING"}');
INSERT INTO outbox VALUES(27,'default','stuck','01a1e8eb9fa17161a3851d53863d0630','operation.step_done',1794909118.3843503,'{"kind":"golden","record":"done","step":"approval","state":"RUNNING"}');
INSERT INTO outbox VALUES(28,'default','stuck','01a1e8eb9fa17161a3851d53863d0630','operation.compensating',1794909118.386262,'{"kind":"golden","record":"refused","step":"credentials","state":"COMPENSATING","why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO outbox VALUES(29,'default','stuck','01a1e8eb9fa17161a3851d53863d0630','operation.step_undone',1794909118.387007,'{"kind":"golden","record":"undone","step":"credentials","state":"COMPENSATING","why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO outbox VALUES(30,'default','stuck','01a1e8eb9fa17161a3851d53863d0630','operation.step_undone',1794909118.3885949,'{"kind":"golden","record":"undone","step":"access","state":"COMPENSATING","why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO outbox VALUES(31,'default','stuck','01a1e8eb9fa17161a3851d53863d0630','operation.stuck',1794909118.686844,'{"kind":"golden","record":"stuck","step":"runtime","state":"STUCK","why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO outbox VALUES(32,'default','stuck','01a1e8eb9fa17161a3851d53863d0630','operation.step_undone',1794909118.689268,'{"kind":"golden","record":"undone","step":"identity","state":"STUCK","why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO outbox VALUES(33,'default','pending','01a1e8eba0e778caa697509049bbe891','operation.accepted',1794909118.6955492,'{"kind":"golden","record":"accepted","step":"","state":"PENDING"}');

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


COMMIT TRANSACTION;
PRAGMA application_id=1416525170;
PRAGMA user_version=1;
