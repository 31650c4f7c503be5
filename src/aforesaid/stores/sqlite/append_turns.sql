-- Append turns to their logs: every row inserted into `new_messages` is a message, and the last row of a turn also has
-- the changed columns of the record. So one statement, which is a transaction by itself, appends any number of turns.
-- The view and its triggers are temporary objects of the writer's connection.

CREATE TEMP VIEW new_messages AS
SELECT
    NULL AS conversation, NULL AS at, NULL AS sequence, NULL AS message_id, NULL AS revision,
    NULL AS stored_at, NULL AS body,
    NULL AS last_message_at, NULL AS last_message_from, NULL AS unread_count, NULL AS message_count,
    NULL AS expires_at, NULL AS head;

-- Rows without a conversation are padding.
CREATE TEMP TRIGGER append_message INSTEAD OF INSERT ON new_messages WHEN new.conversation IS NOT NULL BEGIN
    INSERT INTO messages (conversation, at, sequence, message_id, revision, stored_at, body)
    VALUES (
        new.conversation, new.at, new.sequence, new.message_id, new.revision, new.stored_at, new.body
    );
END;

CREATE TEMP TRIGGER update_record INSTEAD OF INSERT ON new_messages WHEN new.last_message_from IS NOT NULL BEGIN
    UPDATE conversations
    SET
        last_message_at = new.last_message_at, last_message_from = new.last_message_from,
        unread_count = new.unread_count, message_count = new.message_count, revision = new.revision,
        next_sequence = new.sequence + 1, expires_at = new.expires_at, updated_at = new.stored_at,
        head = new.head
    WHERE pk = new.conversation;
END;
