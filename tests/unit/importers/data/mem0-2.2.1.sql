PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE history (
                        id           TEXT PRIMARY KEY,
                        memory_id    TEXT,
                        old_memory   TEXT,
                        new_memory   TEXT,
                        event        TEXT,
                        created_at   DATETIME,
                        updated_at   DATETIME,
                        is_deleted   INTEGER,
                        actor_id     TEXT,
                        role         TEXT
                    );
INSERT INTO history VALUES('75af395e-7bf8-4e88-80f8-d879ac6eec21','7a8094b8-7a28-4614-910d-1478d2a9b839',NULL,'I like green tea','ADD','2026-11-19T06:36:37.268196+00:00','2026-11-19T06:36:37.268196+00:00',0,NULL,'user');
INSERT INTO history VALUES('adfb5865-452c-44e6-9819-c84ad6790dcb','1990a58f-20f7-4644-9894-e7cb90914b13',NULL,'I live in Lima','ADD','2026-11-19T06:36:37.331960+00:00','2026-11-19T06:36:37.331960+00:00',0,NULL,'user');
INSERT INTO history VALUES('45e4a6b6-2da8-4f34-82af-9e08dd17273d','7a8094b8-7a28-4614-910d-1478d2a9b839','I like green tea','I like black tea','UPDATE','2026-11-19T06:36:37.268196+00:00','2026-11-19T06:36:37.387862+00:00',0,NULL,'user');
INSERT INTO history VALUES('17057913-ce19-44ef-90b6-5c536714c970','1990a58f-20f7-4644-9894-e7cb90914b13','I live in Lima',NULL,'DELETE','2026-11-19T06:36:37.331960+00:00','2026-11-19T06:36:37.422220+00:00',1,NULL,'user');
CREATE TABLE messages (
                        id TEXT PRIMARY KEY,
                        session_scope TEXT,
                        role TEXT,
                        content TEXT,
                        name TEXT,
                        created_at DATETIME
                    );
INSERT INTO messages VALUES('da31f333-6435-4508-9c3c-92cf0e54af4b','user_id=kim','user','I like green tea',NULL,'2026-11-19T06:36:37.468312+00:00');
INSERT INTO messages VALUES('c47d9de4-9bd8-4031-b131-9616073963c0','user_id=kim','assistant','Noted.',NULL,'2026-11-19T06:36:37.468312+00:00');
COMMIT;
