-- Conversations, their messages in reading order, and the sessions bound to them.

CREATE TABLE conversations (
    pk INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    channel TEXT NOT NULL CHECK (channel IN ('voice', 'text', 'email', 'phone')),
    status TEXT NOT NULL CHECK (status IN ('open', 'pending', 'resolved', 'closed')),
    priority TEXT NOT NULL CHECK (priority IN ('low', 'normal', 'high', 'urgent')),
    client_id TEXT,
    client_name TEXT,
    subject TEXT,
    assigned_to TEXT,
    tags TEXT NOT NULL CHECK (json_type(tags) = 'array'),
    notes TEXT,
    last_message_at INTEGER,
    -- Not IN: that builds a table for every check, and every turn checks this one.
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
    last_activity INTEGER NOT NULL GENERATED ALWAYS AS (coalesce(last_message_at, created_at)) VIRTUAL,
    UNIQUE (owner, id)
) STRICT;

CREATE INDEX conversations_by_activity ON conversations (owner, last_activity, id);

-- The log. `at` and `sequence` are the reading order; `body` is the message in its wire form.
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

-- Id first: ids are ordered by time, so that the turns of many conversations land on one page.
CREATE UNIQUE INDEX messages_by_id ON messages (message_id, conversation) WHERE message_id IS NOT NULL;

CREATE TABLE sessions (
    owner TEXT NOT NULL,
    session_id TEXT NOT NULL,
    conversation INTEGER NOT NULL REFERENCES conversations (pk) ON DELETE CASCADE,
    PRIMARY KEY (owner, session_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX sessions_by_conversation ON sessions (conversation);

-- What is kept beside the log: the owner's, or derived from one conversation and gone with it.
CREATE TABLE documents (
    owner TEXT NOT NULL,
    conversation INTEGER REFERENCES conversations (pk) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    version INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;

-- No conversation is 0 here: two that are NULL would not be the same.
CREATE UNIQUE INDEX documents_by_key ON documents (owner, ifnull(conversation, 0), kind, key);
CREATE INDEX documents_by_conversation ON documents (conversation) WHERE conversation IS NOT NULL;
