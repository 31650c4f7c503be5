-- The complete schema, equal to the result of all migrations. Times are microseconds since 1970, UTC.

CREATE TABLE conversations (
    pk INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    channel TEXT NOT NULL CHECK (length(channel) BETWEEN 1 AND 32),
    status TEXT NOT NULL CHECK (status IN ('open', 'pending', 'resolved', 'closed')),
    priority TEXT NOT NULL CHECK (priority IN ('low', 'normal', 'high', 'urgent')),
    client_id TEXT,
    client_name TEXT,
    subject TEXT,
    assigned_to TEXT,
    tags TEXT NOT NULL CHECK (json_type(tags) = 'array'),
    notes TEXT,
    last_message_at INTEGER,
    -- Not IN, which would build a table for every check; every turn runs this check.
    last_message_from TEXT CHECK (
        last_message_from = 'user' OR last_message_from = 'assistant'
        OR last_message_from = 'system' OR last_message_from = 'tool'
    ),
    unread_count INTEGER NOT NULL,
    message_count INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    next_sequence INTEGER NOT NULL DEFAULT 1,
    ttl INTEGER,
    expires_at INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    -- The encrypting layer's commitment to the messages of the log and their order.
    head TEXT,
    analysed INTEGER NOT NULL DEFAULT 0,
    searchable INTEGER NOT NULL DEFAULT 0,
    terms INTEGER NOT NULL DEFAULT 0,
    last_activity INTEGER NOT NULL GENERATED ALWAYS AS (coalesce(last_message_at, created_at)) VIRTUAL, name TEXT, participants TEXT, lineage TEXT, root TEXT GENERATED ALWAYS AS (json_extract(lineage, '$[#-1].conversation_id')) VIRTUAL,
    UNIQUE (owner, id)
) STRICT;

CREATE INDEX conversations_by_activity ON conversations (owner, last_activity, id);
CREATE INDEX conversations_by_root ON conversations (owner, root) WHERE root IS NOT NULL;

-- The log. `at` and `sequence` give the reading order; `body` is the message in its wire format.
CREATE TABLE messages (
    pk INTEGER PRIMARY KEY,
    conversation INTEGER NOT NULL REFERENCES conversations (pk) ON DELETE CASCADE,
    at INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    message_id TEXT,
    revision INTEGER NOT NULL,
    stored_at INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX messages_in_order ON messages (conversation, at, sequence);

-- Ids first: they are ordered by time, so that the turns of many conversations share a page.
CREATE UNIQUE INDEX messages_by_id ON messages (message_id, conversation) WHERE message_id IS NOT NULL;

CREATE TABLE sessions (
    owner TEXT NOT NULL,
    session_id TEXT NOT NULL,
    conversation INTEGER NOT NULL REFERENCES conversations (pk) ON DELETE CASCADE,
    PRIMARY KEY (owner, session_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX sessions_by_conversation ON sessions (conversation);

-- Documents: the owner's, or derived from one conversation and deleted with it.
CREATE TABLE documents (
    owner TEXT NOT NULL,
    conversation INTEGER REFERENCES conversations (pk) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    version INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;

-- 0 for no conversation: two NULLs would not be equal.
CREATE UNIQUE INDEX documents_by_key ON documents (owner, ifnull(conversation, 0), kind, key);
CREATE INDEX documents_by_conversation ON documents (conversation) WHERE conversation IS NOT NULL;

-- The search index: one row per analysed message. `terms` are its terms separated by spaces. Rows are added in the
-- order of their keys, so messages after the last one wait to be analysed; a search reads both. The row has everything
-- that a search returns, so the log is not read. `owner` is a digest, which is the prefix of each term in the full-text
-- table: no two owners share a posting list.
CREATE TABLE indexed (
    message INTEGER PRIMARY KEY REFERENCES messages (pk) ON DELETE CASCADE,
    conversation INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    at INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    role TEXT NOT NULL,
    length INTEGER NOT NULL,
    terms TEXT NOT NULL
) STRICT;

-- The messages with a term. Frequencies are counted from `indexed`, for the returned messages only.
CREATE VIRTUAL TABLE message_terms USING fts5 (
    terms, content = '', columnsize = 0, detail = none, tokenize = 'ascii'
);

CREATE VIRTUAL TABLE term_frequencies USING fts5vocab (message_terms, row);

-- The number of messages deleted from the full-text table since its last rewrite: their terms are not found any more,
-- but are still in the file. One row.
CREATE TABLE index_residue (messages INTEGER NOT NULL) STRICT;
INSERT INTO index_residue (messages) VALUES (0);

CREATE TRIGGER message_is_not_indexed AFTER DELETE ON indexed BEGIN
    INSERT INTO message_terms (message_terms, rowid, terms)
    SELECT 'delete', old.message, replace(' ' || old.terms, ' ', printf(' %015x', old.owner))
    WHERE old.length > 0;
    UPDATE index_residue SET messages = messages + (old.length > 0);
    UPDATE conversations
    SET
        analysed = analysed - 1, searchable = searchable - (old.length > 0), terms = terms - old.length
    WHERE pk = old.conversation;
END;

CREATE TRIGGER message_says_something_else AFTER UPDATE OF body ON messages BEGIN
    DELETE FROM indexed WHERE message = old.pk;
END;

-- The last change of each conversation's subject or client name, for indexes in memory. Numbers are never used again.

CREATE TABLE labels (
    change INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL,
    conversation INTEGER NOT NULL UNIQUE REFERENCES conversations (pk) ON DELETE CASCADE
) STRICT;

CREATE INDEX labels_by_owner ON labels (owner, change);

CREATE TRIGGER conversation_has_label AFTER INSERT ON conversations
WHEN new.subject IS NOT NULL OR new.client_name IS NOT NULL BEGIN
    INSERT INTO labels (owner, conversation) VALUES (new.owner, new.pk);
END;

CREATE TRIGGER conversation_has_another_label AFTER UPDATE OF subject, client_name ON conversations
WHEN old.subject IS NOT new.subject OR old.client_name IS NOT new.client_name BEGIN
    DELETE FROM labels WHERE conversation = new.pk;
    INSERT INTO labels (owner, conversation) VALUES (new.owner, new.pk);
END;
