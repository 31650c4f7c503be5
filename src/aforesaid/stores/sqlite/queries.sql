-- Every query of the SQLite store. A conversation that has expired is not there: each query that
-- finds one says so.

-- name: insert_conversation
-- A new record; an id that is taken is an error of the UNIQUE constraint.
INSERT INTO conversations (
    owner, id, channel, status, priority, client_id, client_name, subject, assigned_to, tags, notes,
    last_message_at, last_message_from, unread_count, message_count, revision, ttl, expires_at,
    created_at, updated_at
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: get_conversation
-- The record, its key and its next sequence number, and the head of its log.
SELECT
    pk, next_sequence, id, channel, status, priority, client_id, client_name, subject, assigned_to, tags,
    notes, last_message_at, last_message_from, unread_count, message_count, revision, ttl, expires_at,
    created_at, updated_at, head
FROM conversations
WHERE owner = ? AND id = ? AND (expires_at IS NULL OR expires_at > ?);

-- name: get_key
-- The key of a conversation, when only its messages are wanted.
SELECT pk FROM conversations WHERE owner = ? AND id = ? AND (expires_at IS NULL OR expires_at > ?);

-- name: get_ends
-- The key of a conversation, how many messages it has, when it ends, and the head of its log.
SELECT pk, message_count, expires_at, head FROM conversations
WHERE owner = ? AND id = ? AND (expires_at IS NULL OR expires_at > ?);

-- name: get_session
-- The record that a session is bound to.
SELECT
    pk, next_sequence, id, channel, status, priority, client_id, client_name, subject, assigned_to, tags,
    notes, last_message_at, last_message_from, unread_count, message_count, revision, ttl, expires_at,
    created_at, updated_at
FROM sessions JOIN conversations ON pk = conversation
WHERE sessions.owner = ? AND session_id = ? AND (expires_at IS NULL OR expires_at > ?);

-- name: update_conversation
-- The metadata of a record.
UPDATE conversations
SET
    channel = ?, status = ?, priority = ?, client_id = ?, client_name = ?, subject = ?, assigned_to = ?,
    tags = ?, notes = ?, unread_count = ?, revision = ?, ttl = ?, expires_at = ?, updated_at = ?
WHERE pk = ?;

-- name: extend_conversation
-- What an append moves in the record.
UPDATE conversations
SET
    last_message_at = ?, last_message_from = ?, unread_count = ?, message_count = ?, revision = ?,
    next_sequence = ?, expires_at = ?, updated_at = ?, head = ?
WHERE pk = ?;

-- name: find_conversations
-- A page of records, most recently active first. A filter that is NULL does not filter.
SELECT
    pk, next_sequence, id, channel, status, priority, client_id, client_name, subject, assigned_to, tags,
    notes, last_message_at, last_message_from, unread_count, message_count, revision, ttl, expires_at,
    created_at, updated_at
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
ORDER BY last_activity DESC, id DESC
LIMIT :limit;

-- name: get_revision
-- Where a conversation stands, expired or not.
SELECT revision FROM conversations WHERE owner = ? AND id = ?;

-- name: delete_conversation
-- The record; messages and sessions go with it.
DELETE FROM conversations WHERE owner = ? AND id = ?;

-- name: delete_if_expired
-- Make room for a new conversation under the id of one that is over.
DELETE FROM conversations WHERE owner = ? AND id = ? AND expires_at <= ?;

-- name: bind_session
-- The session belongs to this conversation from now on.
INSERT INTO sessions (owner, session_id, conversation) VALUES (?, ?, ?)
ON CONFLICT (owner, session_id) DO UPDATE SET conversation = excluded.conversation;

-- name: unbind_session
-- The session is forgotten.
DELETE FROM sessions WHERE owner = ? AND session_id = ?;

-- name: get_sessions
-- The sessions that are bound to a conversation.
SELECT session_id FROM sessions WHERE conversation = ?;

-- name: restore_conversation
-- A record exactly as it is given, whatever was there; returns its key and its next sequence number.
INSERT INTO conversations (
    owner, id, channel, status, priority, client_id, client_name, subject, assigned_to, tags, notes,
    last_message_at, last_message_from, unread_count, message_count, revision, ttl, expires_at,
    created_at, updated_at
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (owner, id) DO UPDATE SET
    channel = excluded.channel, status = excluded.status, priority = excluded.priority,
    client_id = excluded.client_id, client_name = excluded.client_name, subject = excluded.subject,
    assigned_to = excluded.assigned_to, tags = excluded.tags, notes = excluded.notes,
    last_message_at = excluded.last_message_at, last_message_from = excluded.last_message_from,
    unread_count = excluded.unread_count, message_count = excluded.message_count,
    revision = excluded.revision, ttl = excluded.ttl, expires_at = excluded.expires_at,
    created_at = excluded.created_at, updated_at = excluded.updated_at
RETURNING pk, next_sequence;

-- name: sequences_from
-- Which sequence numbers are taken, from one on.
SELECT sequence FROM messages WHERE conversation = ? AND sequence >= ?;

-- name: skip_sequences
-- New messages come after this one.
UPDATE conversations SET next_sequence = max(next_sequence, ? + 1) WHERE pk = ?;

-- name: insert_message
-- One message in its place; a known id changes nothing.
INSERT INTO messages (conversation, at, sequence, message_id, revision, stored_at, body)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (message_id, conversation) WHERE message_id IS NOT NULL DO NOTHING;

-- name: append_messages
-- Insert rows into the view of append_turns.sql, unless another connection has written since that version.
INSERT INTO new_messages
SELECT * FROM (VALUES (?))
WHERE (SELECT data_version FROM pragma_data_version) = ?;

-- name: get_message
-- The message that holds an id. Bodies are read as bytes: text that is not UTF-8 would fail its whole page.
SELECT at, sequence, revision, stored_at, CAST(body AS BLOB) FROM messages WHERE message_id = ?2 AND conversation = ?1;

-- name: replace_message
-- Other words in the place of a message.
UPDATE messages SET revision = ?, body = ? WHERE conversation = ? AND at = ? AND sequence = ?;

-- name: touch_conversation
-- The record after a message in its log was replaced.
UPDATE conversations SET revision = revision + 1, updated_at = ? WHERE pk = ?;

-- name: put_head
-- Another head of the log.
UPDATE conversations SET head = ? WHERE pk = ?;

-- name: exchange_head
-- Another head of the log, if this is still the one that is there.
UPDATE conversations SET head = ?1 WHERE pk = ?2 AND head IS ?3;

-- name: reseal_message
-- Another stored form of a message, in its place.
UPDATE messages SET body = ?1 WHERE conversation = ?5 AND at = ?2 AND sequence = ?3 AND revision = ?4;

-- name: delete_messages
-- A conversation's whole log.
DELETE FROM messages WHERE conversation = ?;

-- name: tail
-- The last messages, newest first.
SELECT at, sequence, revision, stored_at, CAST(body AS BLOB) FROM messages
WHERE conversation = ?
ORDER BY at DESC, sequence DESC
LIMIT ?;

-- name: tail_before
-- The last messages before a position, newest first.
SELECT at, sequence, revision, stored_at, CAST(body AS BLOB) FROM messages
WHERE conversation = ? AND (at, sequence) < (?, ?)
ORDER BY at DESC, sequence DESC
LIMIT ?;

-- name: page
-- Messages from the oldest on.
SELECT at, sequence, revision, stored_at, CAST(body AS BLOB) FROM messages
WHERE conversation = ?
ORDER BY at, sequence
LIMIT ? OFFSET ?;

-- name: put_document
-- A document exactly as it is given, in the place of what is there.
INSERT INTO documents (owner, conversation, kind, key, version, updated_at, data)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (owner, ifnull(conversation, 0), kind, key) DO UPDATE SET
    version = excluded.version, updated_at = excluded.updated_at, data = excluded.data;

-- name: document_version
-- Where a document stands. Without a conversation it is 0, here and below.
SELECT version FROM documents WHERE owner = ? AND ifnull(conversation, 0) = ? AND kind = ? AND key = ?;

-- name: get_document
-- One document.
SELECT version, updated_at, data FROM documents
WHERE owner = ? AND ifnull(conversation, 0) = ? AND kind = ? AND key = ?;

-- name: list_documents
-- Documents of a kind, by key, after a given one.
SELECT key, version, updated_at, data FROM documents
WHERE owner = ? AND ifnull(conversation, 0) = ? AND kind = ? AND key > ?
ORDER BY key
LIMIT ?;

-- name: document_kinds
-- The kinds that there are.
SELECT DISTINCT kind FROM documents WHERE owner = ? AND ifnull(conversation, 0) = ? ORDER BY kind;

-- name: delete_document
-- One document.
DELETE FROM documents WHERE owner = ? AND ifnull(conversation, 0) = ? AND kind = ? AND key = ?;

-- name: delete_documents
-- All that was derived from a conversation.
DELETE FROM documents WHERE conversation = ?;

-- name: owners
-- Everybody with a conversation or a document that is of no given kind, after a given one, in order.
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
-- One owner's expired conversations, a few at a time so that turns get in between.
DELETE FROM conversations
WHERE pk IN (SELECT pk FROM conversations WHERE owner = ? AND expires_at <= ? LIMIT ?);

-- name: purge_everybody
-- All expired conversations, a few at a time.
DELETE FROM conversations WHERE pk IN (SELECT pk FROM conversations WHERE expires_at <= ? LIMIT ?);

-- name: expired
-- One owner's conversations whose lifetime ends by a moment, in no order.
SELECT
    pk, next_sequence, id, channel, status, priority, client_id, client_name, subject, assigned_to, tags,
    notes, last_message_at, last_message_from, unread_count, message_count, revision, ttl, expires_at,
    created_at, updated_at
FROM conversations
WHERE owner = ? AND expires_at <= ?;

-- name: clear_documents
-- All of one owner's documents, and those of its conversations.
DELETE FROM documents WHERE owner = ?;

-- name: clear_sessions
-- All of one owner's sessions.
DELETE FROM sessions WHERE owner = ?;

-- name: clear_owner
-- Some of one owner's conversations, whatever their lifetime; returns how many messages each had, and in the index.
DELETE FROM conversations WHERE pk IN (SELECT pk FROM conversations WHERE owner = ? LIMIT ?)
RETURNING message_count, searchable;

-- name: tally_owner
-- How many conversations an owner has, with how many messages, index entries and sessions.
SELECT
    count(*), ifnull(sum(message_count), 0), ifnull(sum(searchable), 0),
    (SELECT count(*) FROM sessions WHERE owner = ?1)
FROM conversations
WHERE owner = ?1;

-- name: tally_conversation
-- The same for one conversation.
SELECT
    count(*), ifnull(sum(message_count), 0), ifnull(sum(searchable), 0),
    (SELECT count(*) FROM sessions WHERE conversation = pk)
FROM conversations
WHERE owner = ?1 AND id = ?2;

-- name: count_documents
-- How many documents of each kind an owner has, and each conversation of theirs: by the index, without sorting.
SELECT kind, count(*) FROM documents WHERE owner = ? GROUP BY ifnull(conversation, 0), kind;

-- name: count_derived
-- Of which kind each document of one conversation is.
SELECT kind, 1 FROM documents WHERE conversation = (SELECT pk FROM conversations WHERE owner = ?1 AND id = ?2);

-- Searching

-- name: insert_indexed
-- The terms of a message.
INSERT INTO indexed (message, conversation, owner, at, sequence, role, length, terms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_terms
-- The terms of a message, each with its owner before it, so that they are found.
INSERT INTO message_terms (rowid, terms) VALUES (?, ?);

-- name: count_indexed
-- How much of a conversation is in the index.
UPDATE conversations SET analysed = analysed + ?, searchable = searchable + ?, terms = terms + ? WHERE pk = ?;

-- name: last_indexed
-- The newest message in the index.
SELECT coalesce(max(message), 0) FROM indexed;

-- name: most_waiting
-- How many messages wait for the index at most: keys of deleted ones may lie between.
SELECT coalesce(max(pk), 0) - (SELECT coalesce(max(message), 0) FROM indexed) FROM messages;

-- name: waiting_messages
-- The oldest messages that wait for the index.
SELECT m.pk, m.conversation, c.owner, m.at, m.sequence, CAST(m.body AS BLOB)
FROM messages AS m
JOIN conversations AS c ON c.pk = m.conversation
WHERE m.pk > (SELECT coalesce(max(message), 0) FROM indexed)
ORDER BY m.pk
LIMIT ?;

-- name: waiting_for_owner
-- What of an owner is among the messages that wait for the index.
SELECT m.pk, c.id, m.at, m.sequence, CAST(m.body AS BLOB)
FROM messages AS m
CROSS JOIN conversations AS c ON c.pk = m.conversation
WHERE
    m.pk > (SELECT coalesce(max(message), 0) FROM indexed)
    AND c.owner = ?1 AND (c.expires_at IS NULL OR c.expires_at > ?2);

-- name: not_indexed_conversations
-- Where there may be messages that nobody analysed: written while there was no index, or by somebody who
-- keeps none. The counts in a record tell.
SELECT pk, owner FROM conversations WHERE analysed < message_count AND pk > ? ORDER BY pk LIMIT 1;

-- name: not_indexed_messages
-- Messages of a conversation that nobody analysed, after a position, without those that wait at the end.
SELECT m.pk, m.at, m.sequence, CAST(m.body AS BLOB)
FROM messages AS m
WHERE
    m.conversation = ? AND (m.at, m.sequence) > (?, ?)
    AND m.pk <= (SELECT coalesce(max(message), 0) FROM indexed)
    AND NOT EXISTS (SELECT 1 FROM indexed AS i WHERE i.message = m.pk)
ORDER BY m.at, m.sequence
LIMIT ?;

-- name: insert_if_not_indexed
-- The terms of a message, if it is still what was analysed and nobody else was first.
INSERT INTO indexed (message, conversation, owner, at, sequence, role, length, terms)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8
WHERE
    EXISTS (
        SELECT 1 FROM messages
        WHERE pk = ?1 AND conversation = ?2 AND sequence = ?5 AND CAST(body AS BLOB) = CAST(?9 AS BLOB)
    )
    AND NOT EXISTS (SELECT 1 FROM indexed WHERE message = ?1);

-- name: message_key
-- Where in the table a message is.
SELECT pk FROM messages WHERE conversation = ? AND at = ? AND sequence = ?;

-- name: searched_totals
-- What of an owner is in the index: messages and terms of conversations that are not over, and how many are.
SELECT
    coalesce(sum(searchable) FILTER (WHERE expires_at IS NULL OR expires_at > ?2), 0),
    coalesce(sum(terms) FILTER (WHERE expires_at IS NULL OR expires_at > ?2), 0),
    count(*) FILTER (WHERE expires_at <= ?2)
FROM conversations
WHERE owner = ?1;

-- name: expired_messages
-- The messages of an owner's conversations that are over.
SELECT m.pk FROM conversations AS c JOIN messages AS m ON m.conversation = c.pk
WHERE c.owner = ? AND c.expires_at <= ?;

-- name: term_frequency
-- How many messages have a term.
SELECT doc FROM term_frequencies WHERE term = ?;

-- name: messages_with
-- The newest messages that have a term, as one text: rows would take longer to hand over.
SELECT json_group_array(rowid)
FROM (SELECT rowid FROM message_terms WHERE message_terms MATCH ? ORDER BY rowid DESC LIMIT ?);

-- name: found_messages
-- All that is known of these messages, but what they say.
SELECT i.message, c.id, i.at, i.sequence, i.role, i.length, i.terms
FROM json_each(?) AS wanted
CROSS JOIN indexed AS i ON i.message = wanted.value
CROSS JOIN conversations AS c ON c.pk = i.conversation;

-- name: index_residue
-- How many messages' terms are still in the file though they are in no answer, in the lower 32 bits.
SELECT messages FROM index_residue;

-- name: prepare_merging
-- Let a merge that was begun with few segments go on, however few they are.
INSERT INTO message_terms (message_terms, rank) VALUES ('usermerge', 2);

-- name: has_padding
-- Whether the padding is in the index.
SELECT rowid FROM message_terms WHERE message_terms MATCH ?;

-- name: merge_index
-- Merge segments, so many pages of them. A negative number begins with all of them; it is done when a step with
-- a positive number has nothing to change.
INSERT INTO message_terms (message_terms, rank) VALUES ('merge', ?);

-- name: index_structure
-- The segments of the full-text index and their levels.
SELECT block FROM message_terms_data WHERE id = 10;

-- name: touch_index_residue
-- Change nothing, and commit all the same.
UPDATE index_residue SET messages = messages;

-- name: settle_index_residue
-- The index was rewritten: nothing deleted is in it, unless something was deleted since. The upper half of the
-- number counts rewrites, so that no value comes twice.
UPDATE index_residue SET messages = ((messages >> 32) + 1) << 32 WHERE messages = ?;

-- name: weights
-- Bytes of every table and index, the parts of the full-text index each by itself.
SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY name;
