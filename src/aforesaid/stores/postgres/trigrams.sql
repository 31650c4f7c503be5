-- Trigram indexes of subjects and client names, for servers with pg_trgm. `{extension}` is the schema of the extension.
--
-- Under row-level security, the server does not use them for ILIKE. They serve roles without row-level security.

CREATE INDEX IF NOT EXISTS conversations_by_subject ON aforesaid.conversations
    USING gin (subject {extension}.gin_trgm_ops) WHERE subject IS NOT NULL;
CREATE INDEX IF NOT EXISTS conversations_by_client_name ON aforesaid.conversations
    USING gin (client_name {extension}.gin_trgm_ops) WHERE client_name IS NOT NULL;
