PRAGMA page_size=4096;

BEGIN TRANSACTION;

DROP TABLE IF EXISTS active;
CREATE TABLE active (
    agent       TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL,
    operation   TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO active VALUES('compensating','default','01a1e8fbe2717f02a83b2b407f7cbbda');
INSERT INTO active VALUES('pending','default','01a1e8fbe3e376eeb11e2a2bfdcc2863');
INSERT INTO active VALUES('running','default','01a1e8fbe23c7c73b19fb1dc187a64ad');
INSERT INTO active VALUES('stuck','default','01a1e8fbe2977203ae0dc802e029220c');
INSERT INTO active VALUES('waiting','default','01a1e8fbe242718f8548a34edd155b24');

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
INSERT INTO batch VALUES(4,'01a1e8fbe2097cb69b4e887a5f32aff3');
INSERT INTO batch VALUES(5,'01a1e8fbe2097cb69b4e887a5f32aff3/2/1');
INSERT INTO batch VALUES(6,'01a1e8fbe2097cb69b4e887a5f32aff3/3/1');
INSERT INTO batch VALUES(7,'01a1e8fbe2097cb69b4e887a5f32aff3/4/1');
INSERT INTO batch VALUES(8,'01a1e8fbe2097cb69b4e887a5f32aff3/5/1');
INSERT INTO batch VALUES(9,'01a1e8fbe2097cb69b4e887a5f32aff3/6/1');
INSERT INTO batch VALUES(10,'01a1e8fbe2097cb69b4e887a5f32aff3/7/1');
INSERT INTO batch VALUES(11,'01a1e8fbe23c7c73b19fb1dc187a64ad');
INSERT INTO batch VALUES(12,'01a1e8fbe242718f8548a34edd155b24 01a1e8fbe23c7c73b19fb1dc187a64ad/2/1');
INSERT INTO batch VALUES(13,'01a1e8fbe242718f8548a34edd155b24/2/1 01a1e8fbe23c7c73b19fb1dc187a64ad/3/1');
INSERT INTO batch VALUES(14,'01a1e8fbe242718f8548a34edd155b24/3/1');
INSERT INTO batch VALUES(15,'01a1e8fbe242718f8548a34edd155b24/4/1');
INSERT INTO batch VALUES(16,'');
INSERT INTO batch VALUES(17,'01a1e8fbe2717f02a83b2b407f7cbbda');
INSERT INTO batch VALUES(18,'01a1e8fbe2717f02a83b2b407f7cbbda/2/1');
INSERT INTO batch VALUES(19,'01a1e8fbe2717f02a83b2b407f7cbbda/3/1');
INSERT INTO batch VALUES(20,'01a1e8fbe2717f02a83b2b407f7cbbda/4/1');
INSERT INTO batch VALUES(21,'01a1e8fbe2717f02a83b2b407f7cbbda/5/1');
INSERT INTO batch VALUES(22,'01a1e8fbe2717f02a83b2b407f7cbbda/6/1');
INSERT INTO batch VALUES(23,'01a1e8fbe2717f02a83b2b407f7cbbda/7/1');
INSERT INTO batch VALUES(24,'01a1e8fbe2717f02a83b2b407f7cbbda/8/1');
INSERT INTO batch VALUES(25,'01a1e8fbe2977203ae0dc802e029220c');
INSERT INTO batch VALUES(26,'01a1e8fbe2977203ae0dc802e029220c/2/1');
INSERT INTO batch VALUES(27,'01a1e8fbe2977203ae0dc802e029220c/3/1');
INSERT INTO batch VALUES(28,'01a1e8fbe2977203ae0dc802e029220c/4/1');
INSERT INTO batch VALUES(29,'01a1e8fbe2977203ae0dc802e029220c/5/1');
INSERT INTO batch VALUES(30,'01a1e8fbe2977203ae0dc802e029220c/6/1');
INSERT INTO batch VALUES(31,'01a1e8fbe2977203ae0dc802e029220c/7/1');
INSERT INTO batch VALUES(32,'01a1e8fbe2977203ae0dc802e029220c/8/1');
INSERT INTO batch VALUES(33,'');
INSERT INTO batch VALUES(34,'');
INSERT INTO batch VALUES(35,'');
INSERT INTO batch VALUES(36,'');
INSERT INTO batch VALUES(37,'');
INSERT INTO batch VALUES(38,'');
INSERT INTO batch VALUES(39,'01a1e8fbe2977203ae0dc802e029220c/9/1');
INSERT INTO batch VALUES(40,'01a1e8fbe2977203ae0dc802e029220c/10/1');
INSERT INTO batch VALUES(41,'01a1e8fbe3e376eeb11e2a2bfdcc2863');

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
INSERT INTO intent VALUES('01a1e8fbe2097cb69b4e887a5f32aff3','access','default','access','accessb44ec30239a0c2b1254905ba6a36','PRESENT',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8fbe2097cb69b4e887a5f32aff3','approval','default','','rb44ec30239a0c2b125495e2bf7c7','PRESENT',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8fbe2097cb69b4e887a5f32aff3','credentials','default','credentials','credentialsb44ec30239a0c2b12549332a8f79','PRESENT',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8fbe2097cb69b4e887a5f32aff3','exposure','default','exposure','exposureb44ec30239a0c2b12549f02de386','PRESENT',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8fbe2097cb69b4e887a5f32aff3','identity','default','identity','identityb44ec30239a0c2b1254935778e60','PRESENT',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8fbe2097cb69b4e887a5f32aff3','runtime','default','runtime','runtimeb44ec30239a0c2b12549abde9e25','PRESENT',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8fbe23c7c73b19fb1dc187a64ad','access','default','access','access2c51176d1de478a138e905ba6a36','INTENDED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8fbe23c7c73b19fb1dc187a64ad','identity','default','identity','identity2c51176d1de478a138e935778e60','PRESENT',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8fbe23c7c73b19fb1dc187a64ad','runtime','default','runtime','runtime2c51176d1de478a138e9abde9e25','PRESENT',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8fbe242718f8548a34edd155b24','access','default','access','accessb84ac4ca313f4557277b05ba6a36','PRESENT',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8fbe242718f8548a34edd155b24','approval','default','','rb84ac4ca313f4557277b5e2bf7c7','INTENDED',1,0,NULL,NULL,'1:approved','someone must say so');
INSERT INTO intent VALUES('01a1e8fbe242718f8548a34edd155b24','identity','default','identity','identityb84ac4ca313f4557277b35778e60','PRESENT',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8fbe242718f8548a34edd155b24','runtime','default','runtime','runtimeb84ac4ca313f4557277babde9e25','PRESENT',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8fbe2717f02a83b2b407f7cbbda','access','default','access','accessf5b17f8481e93962cb2705ba6a36','BURNED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8fbe2717f02a83b2b407f7cbbda','approval','default','','rf5b17f8481e93962cb275e2bf7c7','PRESENT',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8fbe2717f02a83b2b407f7cbbda','credentials','default','credentials','credentialsf5b17f8481e93962cb27332a8f79','BURNED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8fbe2717f02a83b2b407f7cbbda','identity','default','identity','identityf5b17f8481e93962cb2735778e60','REMOVING',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8fbe2717f02a83b2b407f7cbbda','runtime','default','runtime','runtimef5b17f8481e93962cb27abde9e25','REMOVING',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8fbe2977203ae0dc802e029220c','access','default','access','access28a2f36115a08ac5542805ba6a36','BURNED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8fbe2977203ae0dc802e029220c','approval','default','','r28a2f36115a08ac554285e2bf7c7','PRESENT',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8fbe2977203ae0dc802e029220c','credentials','default','credentials','credentials28a2f36115a08ac55428332a8f79','BURNED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8fbe2977203ae0dc802e029220c','identity','default','identity','identity28a2f36115a08ac5542835778e60','BURNED',1,0,0.0,NULL,NULL,NULL);
INSERT INTO intent VALUES('01a1e8fbe2977203ae0dc802e029220c','runtime','default','runtime','runtime28a2f36115a08ac55428abde9e25','REMOVING',1,7,1794910184.4606924,NULL,NULL,'not now');
INSERT INTO intent VALUES('01a1e8fbe3e376eeb11e2a2bfdcc2863','identity','default','identity','identitya4315bb20e2427162db235778e60','INTENDED',0,0,0.0,NULL,NULL,NULL);

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
INSERT INTO journal VALUES('01a1e8fbe2097cb69b4e887a5f32aff3',1,'default','accepted','',1794910183.9457943,'{}');
INSERT INTO journal VALUES('01a1e8fbe2097cb69b4e887a5f32aff3',2,'default','done','identity',1794910183.9510045,'{"file":"identityb44ec30239a0c2b1254935778e60"}');
INSERT INTO journal VALUES('01a1e8fbe2097cb69b4e887a5f32aff3',3,'default','done','access',1794910183.967437,'{"file":"accessb44ec30239a0c2b1254905ba6a36"}');
INSERT INTO journal VALUES('01a1e8fbe2097cb69b4e887a5f32aff3',4,'default','done','runtime',1794910183.973787,'{"file":"runtimeb44ec30239a0c2b12549abde9e25"}');
INSERT INTO journal VALUES('01a1e8fbe2097cb69b4e887a5f32aff3',5,'default','done','approval',1794910183.981803,'{}');
INSERT INTO journal VALUES('01a1e8fbe2097cb69b4e887a5f32aff3',6,'default','done','credentials',1794910183.9871428,'{"file":"credentialsb44ec30239a0c2b12549332a8f79"}');
INSERT INTO journal VALUES('01a1e8fbe2097cb69b4e887a5f32aff3',7,'default','done','exposure',1794910183.9916677,'{"file":"exposureb44ec30239a0c2b12549f02de386"}');
INSERT INTO journal VALUES('01a1e8fbe23c7c73b19fb1dc187a64ad',1,'default','accepted','',1794910183.996778,'{}');
INSERT INTO journal VALUES('01a1e8fbe23c7c73b19fb1dc187a64ad',2,'default','done','identity',1794910184.0032098,'{"file":"identity2c51176d1de478a138e935778e60"}');
INSERT INTO journal VALUES('01a1e8fbe23c7c73b19fb1dc187a64ad',3,'default','done','runtime',1794910184.0163336,'{"file":"runtime2c51176d1de478a138e9abde9e25"}');
INSERT INTO journal VALUES('01a1e8fbe242718f8548a34edd155b24',1,'default','accepted','',1794910184.0020974,'{}');
INSERT INTO journal VALUES('01a1e8fbe242718f8548a34edd155b24',2,'default','done','identity',1794910184.0088654,'{"file":"identityb84ac4ca313f4557277b35778e60"}');
INSERT INTO journal VALUES('01a1e8fbe242718f8548a34edd155b24',3,'default','done','access',1794910184.033814,'{"file":"accessb84ac4ca313f4557277b05ba6a36"}');
INSERT INTO journal VALUES('01a1e8fbe242718f8548a34edd155b24',4,'default','done','runtime',1794910184.0394104,'{"file":"runtimeb84ac4ca313f4557277babde9e25"}');
INSERT INTO journal VALUES('01a1e8fbe2717f02a83b2b407f7cbbda',1,'default','accepted','',1794910184.049938,'{}');
INSERT INTO journal VALUES('01a1e8fbe2717f02a83b2b407f7cbbda',2,'default','done','identity',1794910184.0548863,'{"file":"identityf5b17f8481e93962cb2735778e60"}');
INSERT INTO journal VALUES('01a1e8fbe2717f02a83b2b407f7cbbda',3,'default','done','access',1794910184.0586004,'{"file":"accessf5b17f8481e93962cb2705ba6a36"}');
INSERT INTO journal VALUES('01a1e8fbe2717f02a83b2b407f7cbbda',4,'default','done','runtime',1794910184.061685,'{"file":"runtimef5b17f8481e93962cb27abde9e25"}');
INSERT INTO journal VALUES('01a1e8fbe2717f02a83b2b407f7cbbda',5,'default','done','approval',1794910184.0684526,'{}');
INSERT INTO journal VALUES('01a1e8fbe2717f02a83b2b407f7cbbda',6,'default','refused','credentials',1794910184.0751245,'{"why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO journal VALUES('01a1e8fbe2717f02a83b2b407f7cbbda',7,'default','undone','credentials',1794910184.0762694,'{}');
INSERT INTO journal VALUES('01a1e8fbe2717f02a83b2b407f7cbbda',8,'default','undone','access',1794910184.0785956,'{}');
INSERT INTO journal VALUES('01a1e8fbe2977203ae0dc802e029220c',1,'default','accepted','',1794910184.0871258,'{}');
INSERT INTO journal VALUES('01a1e8fbe2977203ae0dc802e029220c',2,'default','done','identity',1794910184.090885,'{"file":"identity28a2f36115a08ac5542835778e60"}');
INSERT INTO journal VALUES('01a1e8fbe2977203ae0dc802e029220c',3,'default','done','access',1794910184.093798,'{"file":"access28a2f36115a08ac5542805ba6a36"}');
INSERT INTO journal VALUES('01a1e8fbe2977203ae0dc802e029220c',4,'default','done','runtime',1794910184.1031728,'{"file":"runtime28a2f36115a08ac55428abde9e25"}');
INSERT INTO journal VALUES('01a1e8fbe2977203ae0dc802e029220c',5,'default','done','approval',1794910184.1057587,'{}');
INSERT INTO journal VALUES('01a1e8fbe2977203ae0dc802e029220c',6,'default','refused','credentials',1794910184.108626,'{"why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO journal VALUES('01a1e8fbe2977203ae0dc802e029220c',7,'default','undone','credentials',1794910184.1116488,'{}');
INSERT INTO journal VALUES('01a1e8fbe2977203ae0dc802e029220c',8,'default','undone','access',1794910184.1146228,'{}');
INSERT INTO journal VALUES('01a1e8fbe2977203ae0dc802e029220c',9,'default','stuck','runtime',1794910184.4098825,'{"why":"the undo of runtime still fails after 0.3 s: not now"}');
INSERT INTO journal VALUES('01a1e8fbe2977203ae0dc802e029220c',10,'default','undone','identity',1794910184.4147131,'{}');
INSERT INTO journal VALUES('01a1e8fbe3e376eeb11e2a2bfdcc2863',1,'default','accepted','',1794910184.419433,'{}');

DROP TABLE IF EXISTS lease;
CREATE TABLE lease (
    name        TEXT PRIMARY KEY,
    holder      TEXT NOT NULL,
    token       INTEGER NOT NULL,
    until       REAL NOT NULL
) WITHOUT ROWID;
INSERT INTO lease VALUES('worker/01a1e8fbe2017b569794bdc6e02bc257','01a1e8fbe2017b569794bdc6e02bc257',1,1794910783.9377272);

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
INSERT INTO operation VALUES('01a1e8fbe2097cb69b4e887a5f32aff3','default','local','golden','cb7a60b06e59f33ebf91612e994c1140','done',1,'SUCCEEDED',7,1,'01a1e8fbe2017b569794bdc6e02bc257',0.0,'{}',NULL,1794910183.9457943,1794910183.9916677,1794910183.9916677);
INSERT INTO operation VALUES('01a1e8fbe23c7c73b19fb1dc187a64ad','default','local','golden','cb7a60b06e59f33ebf91612e994c1140','running',1,'RUNNING',3,1,'01a1e8fbe2017b569794bdc6e02bc257',0.0,'{"hang":"access"}',NULL,1794910183.996778,1794910184.0163336,NULL);
INSERT INTO operation VALUES('01a1e8fbe242718f8548a34edd155b24','default','local','golden','cb7a60b06e59f33ebf91612e994c1140','waiting',1,'WAITING',4,1,'01a1e8fbe2017b569794bdc6e02bc257',4794910184.039411,'{"ask":true}',NULL,1794910184.0020974,1794910184.0450857,NULL);
INSERT INTO operation VALUES('01a1e8fbe2717f02a83b2b407f7cbbda','default','local','golden','cb7a60b06e59f33ebf91612e994c1140','compensating',1,'COMPENSATING',8,1,'01a1e8fbe2017b569794bdc6e02bc257',0.0,'{"refuse":"credentials","linger":"runtime"}','credentials was refused: credentials refuses this spec',1794910184.049938,1794910184.0785956,NULL);
INSERT INTO operation VALUES('01a1e8fbe2977203ae0dc802e029220c','default','local','golden','cb7a60b06e59f33ebf91612e994c1140','stuck',1,'STUCK',10,1,'01a1e8fbe2017b569794bdc6e02bc257',0.0,'{"refuse":"credentials","stick":"runtime"}','credentials was refused: credentials refuses this spec',1794910184.0871258,1794910184.4147131,NULL);
INSERT INTO operation VALUES('01a1e8fbe3e376eeb11e2a2bfdcc2863','default','local','golden','cb7a60b06e59f33ebf91612e994c1140','pending',1,'PENDING',1,0,'',0.0,'{}',NULL,1794910184.419433,1794910184.419433,NULL);
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
INSERT INTO outbox VALUES(1,'default','done','01a1e8fbe2097cb69b4e887a5f32aff3','operation.accepted',1794910183.9457943,'{"kind":"golden","record":"accepted","step":"","state":"RUNNING"}');
INSERT INTO outbox VALUES(2,'default','done','01a1e8fbe2097cb69b4e887a5f32aff3','operation.step_done',1794910183.9510045,'{"kind":"golden","record":"done","step":"identity","state":"RUNNING"}');
INSERT INTO outbox VALUES(3,'default','done','01a1e8fbe2097cb69b4e887a5f32aff3','operation.step_done',1794910183.967437,'{"kind":"golden","record":"done","step":"access","state":"RUNNING"}');
INSERT INTO outbox VALUES(4,'default','done','01a1e8fbe2097cb69b4e887a5f32aff3','operation.step_done',1794910183.973787,'{"kind":"golden","record":"done","step":"runtime","state":"RUNNING"}');
INSERT INTO outbox VALUES(5,'default','done','01a1e8fbe2097cb69b4e887a5f32aff3','operation.step_done',1794910183.981803,'{"kind":"golden","record":"done","step":"approval","state":"RUNNING"}');
INSERT INTO outbox VALUES(6,'default','done','01a1e8fbe2097cb69b4e887a5f32aff3','operation.step_done',1794910183.9871428,'{"kind":"golden","record":"done","step":"credentials","state":"RUNNING"}');
INSERT INTO outbox VALUES(7,'default','done','01a1e8fbe2097cb69b4e887a5f32aff3','operation.succeeded',1794910183.9916677,'{"kind":"golden","record":"done","step":"exposure","state":"SUCCEEDED"}');
INSERT INTO outbox VALUES(8,'default','running','01a1e8fbe23c7c73b19fb1dc187a64ad','operation.accepted',1794910183.996778,'{"kind":"golden","record":"accepted","step":"","state":"RUNNING"}');
INSERT INTO outbox VALUES(9,'default','waiting','01a1e8fbe242718f8548a34edd155b24','operation.accepted',1794910184.0020974,'{"kind":"golden","record":"accepted","step":"","state":"RUNNING"}');
INSERT INTO outbox VALUES(10,'default','running','01a1e8fbe23c7c73b19fb1dc187a64ad','operation.step_done',1794910184.0032098,'{"kind":"golden","record":"done","step":"identity","state":"RUNNING"}');
INSERT INTO outbox VALUES(11,'default','waiting','01a1e8fbe242718f8548a34edd155b24','operation.step_done',1794910184.0088654,'{"kind":"golden","record":"done","step":"identity","state":"RUNNING"}');
INSERT INTO outbox VALUES(12,'default','running','01a1e8fbe23c7c73b19fb1dc187a64ad','operation.step_done',1794910184.0163336,'{"kind":"golden","record":"done","step":"runtime","state":"RUNNING"}');
INSERT INTO outbox VALUES(13,'default','waiting','01a1e8fbe242718f8548a34edd155b24','operation.step_done',1794910184.033814,'{"kind":"golden","record":"done","step":"access","state":"RUNNING"}');
INSERT INTO outbox VALUES(14,'default','waiting','01a1e8fbe242718f8548a34edd155b24','operation.step_done',1794910184.0394104,'{"kind":"golden","record":"done","step":"runtime","state":"RUNNING"}');
INSERT INTO outbox VALUES(15,'default','compensating','01a1e8fbe2717f02a83b2b407f7cbbda','operation.accepted',1794910184.049938,'{"kind":"golden","record":"accepted","step":"","state":"RUNNING"}');
INSERT INTO outbox VALUES(16,'default','compensating','01a1e8fbe2717f02a83b2b407f7cbbda','operation.step_done',1794910184.0548863,'{"kind":"golden","record":"done","step":"identity","state":"RUNNING"}');
INSERT INTO outbox VALUES(17,'default','compensating','01a1e8fbe2717f02a83b2b407f7cbbda','operation.step_done',1794910184.0586004,'{"kind":"golden","record":"done","step":"access","state":"RUNNING"}');
INSERT INTO outbox VALUES(18,'default','compensating','01a1e8fbe2717f02a83b2b407f7cbbda','operation.step_done',1794910184.061685,'{"kind":"golden","record":"done","step":"runtime","state":"RUNNING"}');
INSERT INTO outbox VALUES(19,'default','compensating','01a1e8fbe2717f02a83b2b407f7cbbda','operation.step_done',1794910184.0684526,'{"kind":"golden","record":"done","step":"approval","state":"RUNNING"}');
INSERT INTO outbox VALUES(20,'default','compensating','01a1e8fbe2717f02a83b2b407f7cbbda','operation.compensating',1794910184.0751245,'{"kind":"golden","record":"refused","step":"credentials","state":"COMPENSATING","why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO outbox VALUES(21,'default','compensating','01a1e8fbe2717f02a83b2b407f7cbbda','operation.step_undone',1794910184.0762694,'{"kind":"golden","record":"undone","step":"credentials","state":"COMPENSATING","why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO outbox VALUES(22,'default','compensating','01a1e8fbe2717f02a83b2b407f7cbbda','operation.step_undone',1794910184.0785956,'{"kind":"golden","record":"undone","step":"access","state":"COMPENSATING","why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO outbox VALUES(23,'default','stuck','01a1e8fbe2977203ae0dc802e029220c','operation.accepted',1794910184.0871258,'{"kind":"golden","record":"accepted","step":"","state":"RUNNING"}');
INSERT INTO outbox VALUES(24,'default','stuck','01a1e8fbe2977203ae0dc802e029220c','operation.step_done',1794910184.090885,'{"kind":"golden","record":"done","step":"identity","state":"RUNNING"}');
INSERT INTO outbox VALUES(25,'default','stuck','01a1e8fbe2977203ae0dc802e029220c','operation.step_done',1794910184.093798,'{"kind":"golden","record":"done","step":"access","state":"RUNNING"}');
INSERT INTO outbox VALUES(26,'default','stuck','01a1e8fbe2977203ae0dc802e029220c','operation.step_done',1794910184.1031728,'{"kind":"golden","record":"done","step":"runtime","state":"RUNNING"}');
INSERT INTO outbox VALUES(27,'default','stuck','01a1e8fbe2977203ae0dc802e029220c','operation.step_done',1794910184.1057587,'{"kind":"golden","record":"done","step":"approval","state":"RUNNING"}');
INSERT INTO outbox VALUES(28,'default','stuck','01a1e8fbe2977203ae0dc802e029220c','operation.compensating',1794910184.108626,'{"kind":"golden","record":"refused","step":"credentials","state":"COMPENSATING","why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO outbox VALUES(29,'default','stuck','01a1e8fbe2977203ae0dc802e029220c','operation.step_undone',1794910184.1116488,'{"kind":"golden","record":"undone","step":"credentials","state":"COMPENSATING","why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO outbox VALUES(30,'default','stuck','01a1e8fbe2977203ae0dc802e029220c','operation.step_undone',1794910184.1146228,'{"kind":"golden","record":"undone","step":"access","state":"COMPENSATING","why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO outbox VALUES(31,'default','stuck','01a1e8fbe2977203ae0dc802e029220c','operation.stuck',1794910184.4098825,'{"kind":"golden","record":"stuck","step":"runtime","state":"STUCK","why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO outbox VALUES(32,'default','stuck','01a1e8fbe2977203ae0dc802e029220c','operation.step_undone',1794910184.4147131,'{"kind":"golden","record":"undone","step":"identity","state":"STUCK","why":"credentials was refused: credentials refuses this spec"}');
INSERT INTO outbox VALUES(33,'default','pending','01a1e8fbe3e376eeb11e2a2bfdcc2863','operation.accepted',1794910184.419433,'{"kind":"golden","record":"accepted","step":"","state":"PENDING"}');

DROP TABLE IF EXISTS "plan";
CREATE TABLE plan (
    digest      TEXT PRIMARY KEY,
    name        TEXT NOT NULL,
    version     INTEGER NOT NULL,
    body        TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "plan" VALUES('cb7a60b06e59f33ebf91612e994c1140','golden',1,'{"name":"golden","stages":[[{"inspect":"ask","kind":"compensatable","limits":{"call_seconds":30.0,"deadline_seconds":3000000000.0,"retry_cap_seconds":0.1,"retry_first_seconds":0.02,"undo_seconds":0.3,"visible_seconds":0.0},"name":"identity","needs":[],"slot":"identity","undo":"call"}],[{"inspect":"ask","kind":"compensatable","limits":{"call_seconds":30.0,"deadline_seconds":3000000000.0,"retry_cap_seconds":0.1,"retry_first_seconds":0.02,"undo_seconds":0.3,"visible_seconds":0.0},"name":"access","needs":[],"slot":"access","undo":"call"},{"inspect":"ask","kind":"compensatable","limits":{"call_seconds":30.0,"deadline_seconds":3000000000.0,"retry_cap_seconds":0.1,"retry_first_seconds":0.02,"undo_seconds":0.3,"visible_seconds":0.0},"name":"runtime","needs":[],"slot":"runtime","undo":"call"}],[{"inspect":"repeat","kind":"compensatable","limits":{"call_seconds":30.0,"deadline_seconds":3000000000.0,"retry_cap_seconds":0.1,"retry_first_seconds":0.02,"undo_seconds":0.3,"visible_seconds":0.0},"name":"approval","needs":[],"slot":"","undo":"nothing"}],[{"inspect":"ask","kind":"compensatable","limits":{"call_seconds":30.0,"deadline_seconds":3000000000.0,"retry_cap_seconds":0.1,"retry_first_seconds":0.02,"undo_seconds":0.3,"visible_seconds":0.0},"name":"credentials","needs":[],"slot":"credentials","undo":"call"}],[{"inspect":"ask","kind":"pivot","limits":{"call_seconds":30.0,"deadline_seconds":3000000000.0,"retry_cap_seconds":0.1,"retry_first_seconds":0.02,"undo_seconds":0.3,"visible_seconds":0.0},"name":"exposure","needs":[],"slot":"exposure","undo":""}]],"version":1}');

DROP TABLE IF EXISTS plane;
CREATE TABLE plane (
    one         TEXT PRIMARY KEY,
    name        TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO plane VALUES('this','local');


COMMIT TRANSACTION;
PRAGMA application_id=1416525170;
PRAGMA user_version=1;
