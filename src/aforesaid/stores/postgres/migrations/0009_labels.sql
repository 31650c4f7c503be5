-- Report changes of subjects and client names to indexes in memory.

ALTER TABLE aforesaid.conversations ADD COLUMN label_change bigint;

CREATE INDEX conversations_by_label ON aforesaid.conversations (owner, label_change) WHERE label_change IS NOT NULL;

-- Note the transaction that changes a subject or client name.
CREATE FUNCTION aforesaid.note_label() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    NEW.label_change := pg_catalog.pg_current_xact_id()::pg_catalog.text::pg_catalog.int8;
    RETURN NEW;
END
$$;

CREATE TRIGGER conversation_has_label BEFORE INSERT ON aforesaid.conversations
    FOR EACH ROW WHEN (NEW.subject IS NOT NULL OR NEW.client_name IS NOT NULL)
    EXECUTE FUNCTION aforesaid.note_label();

CREATE TRIGGER conversation_has_another_label BEFORE UPDATE OF subject, client_name ON aforesaid.conversations
    FOR EACH ROW
    WHEN (OLD.subject IS DISTINCT FROM NEW.subject OR OLD.client_name IS DISTINCT FROM NEW.client_name)
    EXECUTE FUNCTION aforesaid.note_label();
