-- Queries of the SQLite store. Expired conversations count as missing; each query checks that itself.

-- name: insert_conversation
-- Insert a record; a taken id violates the UNIQUE constraint.
INSERT INTO conversations (
    owner, id, channel, status, priority, client_id, client_name, subject, assigned_to, tags, notes,
    last_message_at, last_message_from, unread_count, message_count, revision, ttl, expires_at,
    created_at, updated_at, name, participants, lineage, next_sequence
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: get_conversation
-- Return the record, its key, its next sequence and the head of its log.
SELECT
    pk, next_sequence, id, channel, status, priority, client_id, client_name, subject, assigned_to, tags,
    notes, last_message_at, last_message_from, unread_count, message_count, revision, ttl, expires_at,
    created_at, updated_at, name, participants, lineage, head
FROM conversations
WHERE owner = ? AND id = ? AND (expires_at IS NULL OR expires_at > ?);

-- name: get_key
-- Return the key of a conversation, for access to its messages.
SELECT pk FROM conversations WHERE owner = ? AND id = ? AND (expires_at IS NULL OR expires_at > ?);

-- name: get_session
-- Return the record that a session is bound to.
SELECT
    pk, next_sequence, id, channel, status, priority, client_id, client_name, subject, assigned_to, tags,
    notes, last_message_at, last_message_from, unread_count, message_count, revision, ttl, expires_at,
    created_at, updated_at, name, participants, lineage
FROM sessions JOIN conversations ON pk = conversation
WHERE sessions.owner = ? AND session_id = ? AND (expires_at IS NULL OR expires_at > ?);

-- name: update_conversation
-- Update the metadata of a record.
UPDATE conversations
SET
    channel = ?, status = ?, priority = ?, client_id = ?, client_name = ?, subject = ?, assigned_to = ?,
    tags = ?, notes = ?, unread_count = ?, revision = ?, ttl = ?, expires_at = ?, updated_at = ?,
    name = ?, participants = ?
WHERE pk = ?;

-- name: extend_conversation
-- Update the record after an append.
UPDATE conversations
SET
    last_message_at = ?, last_message_from = ?, unread_count = ?, message_count = ?, revision = ?,
    next_sequence = ?, expires_at = ?, updated_at = ?, head = ?
WHERE pk = ?;

-- name: find_conversations
-- Return a page of records, most recently active first. NULL disables a filter.
SELECT
    pk, next_sequence, id, channel, status, priority, client_id, client_name, subject, assigned_to, tags,
    notes, last_message_at, last_message_from, unread_count, message_count, revision, ttl, expires_at,
    created_at, updated_at, name, participants, lineage
FROM conversations
WHERE
    owner = :owner
    AND (expires_at IS NULL OR expires_at > :now)
    AND (:after_activity IS NULL OR (last_activity, id) < (:after_activity, :after_id))
    AND (:date_from IS NULL OR last_activity >= :date_from)
    AND (:date_to IS NULL OR last_activity <= :date_to)
    AND (:client_id IS NULL OR client_id = :client_id)
    AND (:channel IS NULL OR channel = :channel)
    AND (:status IS NULL OR status = :status)
    AND (:priority IS NULL OR priority = :priority)
    AND (:assigned_to IS NULL OR assigned_to = :assigned_to)
    AND (
        :tags IS NULL
        OR EXISTS (SELECT 1 FROM json_each(conversations.tags) AS had JOIN json_each(:tags) AS wanted USING (value))
    )
    AND (
        :participant IS NULL
        OR EXISTS (
            SELECT 1 FROM json_each(conversations.participants) AS one
            WHERE one.value ->> 'id' = :participant AND ifnull(one.value ->> 'role', 'member') <> 'left'
        )
    )
ORDER BY last_activity DESC, id DESC
LIMIT :limit;

-- name: get_revision
-- Return the revision of a conversation, expired or not.
SELECT revision FROM conversations WHERE owner = ? AND id = ?;

-- name: delete_conversation
-- Delete the record; messages and sessions are deleted by cascade.
DELETE FROM conversations WHERE owner = ? AND id = ?;

-- name: delete_if_expired
-- Delete an expired conversation, so that its id can be used again.
DELETE FROM conversations WHERE owner = ? AND id = ? AND expires_at <= ?;

-- name: bind_session
-- Bind the session to this conversation.
INSERT INTO sessions (owner, session_id, conversation) VALUES (?, ?, ?)
ON CONFLICT (owner, session_id) DO UPDATE SET conversation = excluded.conversation;

-- name: unbind_session
-- Delete the session.
DELETE FROM sessions WHERE owner = ? AND session_id = ?;

-- name: get_sessions
-- Return the sessions bound to a conversation.
SELECT session_id FROM sessions WHERE conversation = ?;

-- name: restore_conversation
-- Store a record unchanged, replacing an existing one; return its key and its next sequence.
INSERT INTO conversations (
    owner, id, channel, status, priority, client_id, client_name, subject, assigned_to, tags, notes,
    last_message_at, last_message_from, unread_count, message_count, revision, ttl, expires_at,
    created_at, updated_at, name, participants, lineage, next_sequence
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (owner, id) DO UPDATE SET
    channel = excluded.channel, status = excluded.status, priority = excluded.priority,
    client_id = excluded.client_id, client_name = excluded.client_name, subject = excluded.subject,
    assigned_to = excluded.assigned_to, tags = excluded.tags, notes = excluded.notes,
    last_message_at = excluded.last_message_at, last_message_from = excluded.last_message_from,
    unread_count = excluded.unread_count, message_count = excluded.message_count,
    revision = excluded.revision, ttl = excluded.ttl, expires_at = excluded.expires_at,
    created_at = excluded.created_at, updated_at = excluded.updated_at, name = excluded.name,
    participants = excluded.participants, lineage = excluded.lineage
RETURNING pk, next_sequence;

-- name: sequences_from
-- Return the used sequences from a number on.
SELECT sequence FROM messages WHERE conversation = ? AND sequence >= ?;

-- name: skip_sequences
-- Set the next sequence after restored messages.
UPDATE conversations SET next_sequence = max(next_sequence, ? + 1) WHERE pk = ?;

-- name: insert_message
-- Insert one message; a known id changes nothing.
INSERT INTO messages (conversation, at, sequence, message_id, revision, stored_at, body)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (message_id, conversation) WHERE message_id IS NOT NULL DO NOTHING;

-- name: append_messages
-- Insert rows into the view of append_turns.sql, unless another connection has written since that version.
INSERT INTO new_messages
SELECT * FROM (VALUES (?))
WHERE (SELECT data_version FROM pragma_data_version) = ?;

-- name: get_message
-- Return the message with an id. Bodies are read as bytes: text that is not UTF-8 would fail the whole page.
SELECT at, sequence, revision, stored_at, CAST(body AS BLOB) FROM messages WHERE message_id = ?2 AND conversation = ?1;

-- name: replace_message
-- Replace the body of a message.
UPDATE messages SET revision = ?, body = ? WHERE conversation = ? AND at = ? AND sequence = ?;

-- name: touch_conversation
-- Update the record after a message was replaced.
UPDATE conversations SET revision = revision + 1, updated_at = ? WHERE pk = ?;

-- name: get_head
-- Return the head of the log.
SELECT head FROM conversations WHERE pk = ?;

-- name: put_head
-- Set the head of the log.
UPDATE conversations SET head = ? WHERE pk = ?;

-- name: exchange_head
-- Replace the head of the log if it is unchanged.
UPDATE conversations SET head = ?1 WHERE pk = ?2 AND head IS ?3;

-- name: reseal_message
-- Replace the stored form of a message.
UPDATE messages SET body = ?1 WHERE conversation = ?5 AND at = ?2 AND sequence = ?3 AND revision = ?4;

-- name: delete_messages
-- Delete a conversation's log.
DELETE FROM messages WHERE conversation = ?;

-- name: tail
-- Return the last messages, newest first.
SELECT at, sequence, revision, stored_at, CAST(body AS BLOB) FROM messages
WHERE conversation = ?
ORDER BY at DESC, sequence DESC
LIMIT ?;

-- name: tail_before
-- Return the last messages before a position, newest first.
SELECT at, sequence, revision, stored_at, CAST(body AS BLOB) FROM messages
WHERE conversation = ? AND (at, sequence) < (?, ?)
ORDER BY at DESC, sequence DESC
LIMIT ?;

-- name: page
-- Return messages from the oldest on.
SELECT at, sequence, revision, stored_at, CAST(body AS BLOB) FROM messages
WHERE conversation = ?
ORDER BY at, sequence
LIMIT ? OFFSET ?;

-- name: put_document
-- Store a document unchanged, replacing an existing one.
INSERT INTO documents (owner, conversation, kind, key, version, updated_at, data)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (owner, ifnull(conversation, 0), kind, key) DO UPDATE SET
    version = excluded.version, updated_at = excluded.updated_at, data = excluded.data;

-- name: document_version
-- Return the version of a document. Here and below, 0 means no conversation.
SELECT version FROM documents WHERE owner = ? AND ifnull(conversation, 0) = ? AND kind = ? AND key = ?;

-- name: get_document
-- Return one document.
SELECT version, updated_at, data FROM documents
WHERE owner = ? AND ifnull(conversation, 0) = ? AND kind = ? AND key = ?;

-- name: list_documents
-- Return documents of a kind by key, after a given key.
SELECT key, version, updated_at, data FROM documents
WHERE owner = ? AND ifnull(conversation, 0) = ? AND kind = ? AND key > ?
ORDER BY key
LIMIT ?;

-- name: document_kinds
-- Return the kinds of documents.
SELECT DISTINCT kind FROM documents WHERE owner = ? AND ifnull(conversation, 0) = ? ORDER BY kind;

-- name: delete_document
-- Delete one document.
DELETE FROM documents WHERE owner = ? AND ifnull(conversation, 0) = ? AND kind = ? AND key = ?;

-- name: delete_documents
-- Delete all documents derived from a conversation.
DELETE FROM documents WHERE conversation = ?;

-- name: delete_derived
-- Delete the documents derived from a conversation's log. Open turns and an application's state are not.
DELETE FROM documents WHERE conversation = ? AND kind <> 'open_turns' AND substr(kind, 1, 10) <> 'app/state/';

-- name: owners
-- Return the owners with a conversation or a document of another kind than the given ones, after a given owner, sorted.
SELECT owner FROM (SELECT DISTINCT owner FROM conversations WHERE owner > ?1 ORDER BY owner LIMIT ?2)
UNION
SELECT owner FROM (
    SELECT DISTINCT owner FROM documents
    WHERE owner > ?1 AND kind NOT IN (SELECT value FROM json_each(?3))
    ORDER BY owner LIMIT ?2
)
ORDER BY owner
LIMIT ?2;

-- name: purge_owner
-- Delete some of one owner's expired conversations; batches let turns run in between. A conversation stays while a branch
-- of its family is alive.
DELETE FROM conversations
WHERE pk IN (
    SELECT c.pk FROM conversations AS c
    WHERE
        c.owner = ?1 AND c.expires_at <= ?2
        AND NOT EXISTS (
            SELECT 1 FROM conversations AS branch
            WHERE
                branch.owner = c.owner AND branch.root = coalesce(c.root, c.id)
                AND (branch.expires_at IS NULL OR branch.expires_at > ?2)
        )
    LIMIT ?3
);

-- name: purge_everybody
-- Delete some expired conversations of all owners.
DELETE FROM conversations
WHERE pk IN (
    SELECT c.pk FROM conversations AS c
    WHERE
        c.expires_at <= ?1
        AND NOT EXISTS (
            SELECT 1 FROM conversations AS branch
            WHERE
                branch.owner = c.owner AND branch.root = coalesce(c.root, c.id)
                AND (branch.expires_at IS NULL OR branch.expires_at > ?1)
        )
    LIMIT ?2
);

-- name: family
-- Return the records of all branches with a root, expired or not.
SELECT
    pk, next_sequence, id, channel, status, priority, client_id, client_name, subject, assigned_to, tags,
    notes, last_message_at, last_message_from, unread_count, message_count, revision, ttl, expires_at,
    created_at, updated_at, name, participants, lineage
FROM conversations
WHERE owner = ? AND root = ?
ORDER BY id;

-- name: expired
-- Return one owner's conversations that a purge at a given time deletes, unordered.
SELECT
    pk, next_sequence, id, channel, status, priority, client_id, client_name, subject, assigned_to, tags,
    notes, last_message_at, last_message_from, unread_count, message_count, revision, ttl, expires_at,
    created_at, updated_at, name, participants, lineage
FROM conversations AS c
WHERE
    owner = ?1 AND expires_at <= ?2
    AND NOT EXISTS (
        SELECT 1 FROM conversations AS branch
        WHERE
        branch.owner = c.owner AND branch.root = coalesce(c.root, c.id)
        AND (branch.expires_at IS NULL OR branch.expires_at > ?2)
    );

-- name: kept_expired
-- Return one owner's expired conversations that are kept because a branch of their family is alive.
SELECT
    pk, next_sequence, id, channel, status, priority, client_id, client_name, subject, assigned_to, tags,
    notes, last_message_at, last_message_from, unread_count, message_count, revision, ttl, expires_at,
    created_at, updated_at, name, participants, lineage
FROM conversations AS c
WHERE
    owner = ?1 AND expires_at <= ?2
    AND EXISTS (
        SELECT 1 FROM conversations AS branch
        WHERE
        branch.owner = c.owner AND branch.root = coalesce(c.root, c.id)
        AND (branch.expires_at IS NULL OR branch.expires_at > ?2)
    );

-- name: clear_documents
-- Delete all documents of an owner, including those of conversations.
DELETE FROM documents WHERE owner = ?;

-- name: clear_sessions
-- Delete all sessions of an owner.
DELETE FROM sessions WHERE owner = ?;

-- name: clear_owner
-- Delete some of an owner's conversations; return the numbers of messages and index entries of each.
DELETE FROM conversations WHERE pk IN (SELECT pk FROM conversations WHERE owner = ? LIMIT ?)
RETURNING message_count, searchable;

-- name: tally_owner
-- Count an owner's conversations, messages, index entries and sessions.
SELECT
    count(*), ifnull(sum(message_count), 0), ifnull(sum(searchable), 0),
    (SELECT count(*) FROM sessions WHERE owner = ?1)
FROM conversations
WHERE owner = ?1;

-- name: tally_conversation
-- Count the same for one conversation.
SELECT
    count(*), ifnull(sum(message_count), 0), ifnull(sum(searchable), 0),
    (SELECT count(*) FROM sessions WHERE conversation = pk)
FROM conversations
WHERE owner = ?1 AND id = ?2;

-- name: count_documents
-- Count documents of each kind, of an owner and of each conversation: from the index, without sorting.
SELECT kind, count(*) FROM documents WHERE owner = ? GROUP BY ifnull(conversation, 0), kind;

-- name: count_derived
-- Return the kind of each document of one conversation.
SELECT kind, 1 FROM documents WHERE conversation = (SELECT pk FROM conversations WHERE owner = ?1 AND id = ?2);

-- Searching

-- name: insert_indexed
-- Insert the terms of a message.
INSERT INTO indexed (message, conversation, owner, at, sequence, role, length, terms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_terms
-- Insert the terms of a message into the full-text table, each with the owner's tag as prefix.
INSERT INTO message_terms (rowid, terms) VALUES (?, ?);

-- name: count_indexed
-- Add to the index counts of a conversation.
UPDATE conversations SET analysed = analysed + ?, searchable = searchable + ?, terms = terms + ? WHERE pk = ?;

-- name: last_indexed
-- Return the newest indexed message.
SELECT coalesce(max(message), 0) FROM indexed;

-- name: most_waiting
-- Return an upper bound for the messages that wait to be indexed: keys of deleted ones are included.
SELECT coalesce(max(pk), 0) - (SELECT coalesce(max(message), 0) FROM indexed) FROM messages;

-- name: waiting_messages
-- Return the oldest messages that wait to be indexed.
SELECT m.pk, m.conversation, c.owner, m.at, m.sequence, CAST(m.body AS BLOB)
FROM messages AS m
JOIN conversations AS c ON c.pk = m.conversation
WHERE m.pk > (SELECT coalesce(max(message), 0) FROM indexed)
ORDER BY m.pk
LIMIT ?;

-- name: waiting_for_owner
-- Return an owner's messages that wait to be indexed.
SELECT m.pk, c.id, m.at, m.sequence, CAST(m.body AS BLOB)
FROM messages AS m
CROSS JOIN conversations AS c ON c.pk = m.conversation
WHERE
    m.pk > (SELECT coalesce(max(message), 0) FROM indexed)
    AND c.owner = ?1 AND (c.expires_at IS NULL OR c.expires_at > ?2);

-- name: not_indexed_conversations
-- Return a conversation with unindexed messages, by the counts in its record: messages written without an index, or by
-- another program.
SELECT pk, owner FROM conversations WHERE analysed < message_count AND pk > ? ORDER BY pk LIMIT 1;

-- name: not_indexed_messages
-- Return unindexed messages of a conversation after a position, except those waiting at the end.
SELECT m.pk, m.at, m.sequence, CAST(m.body AS BLOB)
FROM messages AS m
WHERE
    m.conversation = ? AND (m.at, m.sequence) > (?, ?)
    AND m.pk <= (SELECT coalesce(max(message), 0) FROM indexed)
    AND NOT EXISTS (SELECT 1 FROM indexed AS i WHERE i.message = m.pk)
ORDER BY m.at, m.sequence
LIMIT ?;

-- name: insert_if_not_indexed
-- Insert the terms of a message if it is unchanged and not indexed yet.
INSERT INTO indexed (message, conversation, owner, at, sequence, role, length, terms)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8
WHERE
    EXISTS (
        SELECT 1 FROM messages
        WHERE pk = ?1 AND conversation = ?2 AND sequence = ?5 AND CAST(body AS BLOB) = CAST(?9 AS BLOB)
    )
    AND NOT EXISTS (SELECT 1 FROM indexed WHERE message = ?1);

-- name: message_key
-- Return the key of a message.
SELECT pk FROM messages WHERE conversation = ? AND at = ? AND sequence = ?;

-- name: searched_totals
-- Count an owner's indexed messages and terms in unexpired conversations, and the expired conversations.
SELECT
    coalesce(sum(searchable) FILTER (WHERE expires_at IS NULL OR expires_at > ?2), 0),
    coalesce(sum(terms) FILTER (WHERE expires_at IS NULL OR expires_at > ?2), 0),
    count(*) FILTER (WHERE expires_at <= ?2)
FROM conversations
WHERE owner = ?1;

-- name: expired_messages
-- Return the messages of an owner's expired conversations.
SELECT m.pk FROM conversations AS c JOIN messages AS m ON m.conversation = c.pk
WHERE c.owner = ? AND c.expires_at <= ?;

-- name: term_frequency
-- Return the number of messages with a term.
SELECT doc FROM term_frequencies WHERE term = ?;

-- name: messages_with
-- Return the newest messages with a term as one JSON text, which is faster than rows.
SELECT json_group_array(rowid)
FROM (SELECT rowid FROM message_terms WHERE message_terms MATCH ? ORDER BY rowid DESC LIMIT ?);

-- name: lengths_of_messages
-- Return the number of terms of each of these messages.
SELECT i.message, i.length
FROM json_each(?) AS wanted
CROSS JOIN indexed AS i ON i.message = wanted.value;

-- name: found_messages
-- Return the index rows of these messages.
SELECT i.message, c.id, i.at, i.sequence, i.role, i.length, i.terms
FROM json_each(?) AS wanted
CROSS JOIN indexed AS i ON i.message = wanted.value
CROSS JOIN conversations AS c ON c.pk = i.conversation;

-- name: index_residue
-- Return the number of deleted messages with terms still in the file, in the lower 32 bits.
SELECT messages FROM index_residue;

-- name: prepare_merging
-- Allow a running merge to continue with any number of segments.
INSERT INTO message_terms (message_terms, rank) VALUES ('usermerge', 2);

-- name: has_padding
-- Return whether the padding is in the index.
SELECT rowid FROM message_terms WHERE message_terms MATCH ?;

-- name: merge_index
-- Merge segments, up to a number of pages. A negative number starts a merge of all segments; the merge is done when a
-- step with a positive number changes nothing.
INSERT INTO message_terms (message_terms, rank) VALUES ('merge', ?);

-- name: index_structure
-- Return the structure record of the full-text index.
SELECT block FROM message_terms_data WHERE id = 10;

-- name: touch_index_residue
-- Commit a transaction without a change.
UPDATE index_residue SET messages = messages;

-- name: settle_index_residue
-- Reset the residue after a rewrite, unless something was deleted since. The upper half counts rewrites, so that no
-- value occurs twice.
UPDATE index_residue SET messages = ((messages >> 32) + 1) << 32 WHERE messages = ?;

-- name: disk_usage
-- Return the bytes of every table and index, with the parts of the full-text index separately.
SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY name;

-- name: last_label
-- Return the number of the last change of a label, of any owner.
SELECT seq FROM sqlite_sequence WHERE name = 'labels';

-- name: labels_since
-- Return the labels of an owner's conversations that changed after a number, expired ones included.
SELECT id, client_name, subject FROM labels JOIN conversations ON pk = conversation
WHERE labels.owner = ? AND change > ?;
