-- How a turn is put at the end of its log: every row that is inserted into `putting` is a message, and the last
-- one of a turn brings along what moves in the record. So any number of turns is one statement, which is a
-- transaction by itself. Made for the connection that writes, and gone with it.

CREATE TEMP VIEW putting AS
SELECT
    NULL AS conversation, NULL AS at, NULL AS sequence, NULL AS message_id, NULL AS revision,
    NULL AS stored_at, NULL AS body,
    NULL AS last_message_at, NULL AS last_message_from, NULL AS unread_count, NULL AS message_count,
    NULL AS expires_at, NULL AS head;

-- Rows without a conversation only fill up a statement.
CREATE TEMP TRIGGER put_message INSTEAD OF INSERT ON putting WHEN new.conversation IS NOT NULL BEGIN
    INSERT INTO messages (conversation, at, sequence, message_id, revision, stored_at, body)
    VALUES (
        new.conversation, new.at, new.sequence, new.message_id, new.revision, new.stored_at, new.body
    );
END;

CREATE TEMP TRIGGER move_record INSTEAD OF INSERT ON putting WHEN new.last_message_from IS NOT NULL BEGIN
    UPDATE conversations
    SET
        last_message_at = new.last_message_at, last_message_from = new.last_message_from,
        unread_count = new.unread_count, message_count = new.message_count, revision = new.revision,
        next_sequence = new.sequence + 1, expires_at = new.expires_at, updated_at = new.stored_at,
        head = new.head
    WHERE pk = new.conversation;
END;
