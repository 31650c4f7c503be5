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

INSERT INTO labels (owner, conversation)
SELECT owner, pk FROM conversations WHERE subject IS NOT NULL OR client_name IS NOT NULL;
