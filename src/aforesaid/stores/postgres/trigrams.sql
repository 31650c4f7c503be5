-- Indexes for a part of a word in a subject or a client's name, where the server has pg_trgm. `{extension}` is the
-- schema that its things lie in.
--
-- Under row-level security the server does not search them for ILIKE. They serve roles that are not bound by it.

CREATE INDEX IF NOT EXISTS conversations_by_subject ON aforesaid.conversations
    USING gin (subject {extension}.gin_trgm_ops) WHERE subject IS NOT NULL;
CREATE INDEX IF NOT EXISTS conversations_by_client_name ON aforesaid.conversations
    USING gin (client_name {extension}.gin_trgm_ops) WHERE client_name IS NOT NULL;
