-- Queries of the PostgreSQL store. Expired conversations count as missing; each query checks that itself. Row-level
-- security restricts rows to one owner; every query also names the owner.

-- name: schema_objects
-- Return the schema's object names that are taken already.
SELECT n.nspname || '.' || c.relname
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE
    (n.nspname = 'aforesaid' AND c.relkind IN ('r', 'p', 'v'))
    OR (n.nspname = 'api' AND c.relname IN ('conversations', 'contacts'));

-- name: schema_version
-- Return the number of the last migration.
SELECT coalesce(max(m.version), 0) FROM aforesaid.migrations AS m;

-- name: server_time
-- Return the time on the server's clock.
SELECT clock_timestamp();

-- name: extensions_ready
-- Return whether our objects that use an extension exist and this role may use them: for trigrams, for vectors.
SELECT
    to_regclass('aforesaid.conversations_by_subject') IS NOT NULL,
    to_regclass('aforesaid.vectors') IS NOT NULL
    AND has_table_privilege(to_regclass('aforesaid.vectors'), 'INSERT');

-- name: extension
-- Return the state of an extension, whether this role may create it, and whether our objects that use it exist.
-- The server reads the control files of all extensions for each scan of the available versions: scan them once.
WITH versions AS MATERIALIZED (
    SELECT v.trusted FROM pg_available_extension_versions AS v WHERE v.name = %(name)s
)
SELECT
    EXISTS (SELECT FROM versions) AS available,
    (
        SELECT quote_ident(n.nspname) FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
        WHERE e.extname = %(name)s
    ) AS schema,
    EXISTS (
        SELECT FROM versions AS v, pg_roles AS r
        WHERE
            r.rolname = current_user
            AND (r.rolsuper OR (v.trusted AND has_database_privilege(current_database(), 'CREATE')))
    ) AS may_create,
    (
        SELECT t.relowner::regrole::text FROM pg_class AS t
        WHERE t.oid = to_regclass('aforesaid.conversations') AND pg_has_role(t.relowner, 'USAGE')
    ) AS maker;

-- name: set_owner
-- Set the owner for the rest of the transaction.
SELECT aforesaid.set_owner(%(name)s);

-- name: write_turn
-- Append a turn, or replace all messages: see the function `aforesaid.turn`.
SELECT
    done.state, done.sequence, done.stamp,
    (done.conversation).id::text, (done.conversation).channel, (done.conversation).status,
    (done.conversation).priority, (done.conversation).client_id::text, (done.conversation).client_name,
    (done.conversation).subject, (done.conversation).assigned_to, (done.conversation).tags,
    (done.conversation).notes, (done.conversation).last_message_at, (done.conversation).last_message_from,
    (done.conversation).unread_count, (done.conversation).message_count, (done.conversation).revision,
    (done.conversation).ttl, (done.conversation).expires_at, (done.conversation).created_at,
    (done.conversation).updated_at, (done.conversation).name, (done.conversation).participants::text,
    (done.conversation).lineage
FROM aforesaid.turn(
    %(name)s, %(owner)s, %(id)s::uuid, %(now)s, %(expected)s, %(rewrite)s, %(known_keys)s::text[],
    %(known_sequences)s::bigint[], %(roles)s::text[], %(times)s::timestamptz[], %(keys)s::text[],
    %(bodies)b::text[], string_to_array(%(vectors)s, ' | '), %(term_counts)s::integer[], %(head)s, %(seen)s
) AS done;

-- name: append_turns
-- Append turns of several owners and conversations: see the function.
SELECT
    done.place, (done.conversation).next_sequence,
    (done.conversation).id::text, (done.conversation).channel, (done.conversation).status,
    (done.conversation).priority, (done.conversation).client_id::text, (done.conversation).client_name,
    (done.conversation).subject, (done.conversation).assigned_to, (done.conversation).tags,
    (done.conversation).notes, (done.conversation).last_message_at, (done.conversation).last_message_from,
    (done.conversation).unread_count, (done.conversation).message_count, (done.conversation).revision,
    (done.conversation).ttl, (done.conversation).expires_at, (done.conversation).created_at,
    (done.conversation).updated_at, (done.conversation).name, (done.conversation).participants::text,
    (done.conversation).lineage
FROM aforesaid.append_turns(
    %(owners)s::text[], %(ids)s::uuid[], %(times)s::timestamptz[], %(expected)s::bigint[], %(seen)s::text[],
    %(heads)s::text[], %(firsts)s::integer[], %(lasts)s::integer[], %(indexed)s::integer[], %(all_terms)s::integer[],
    %(roles)s::text[], %(keys)s::text[], %(bodies)b::text[], string_to_array(%(vectors)s, ' | '),
    %(term_counts)s::integer[]
) AS done;

-- name: log_end
-- Return the end of a conversation's log.
SELECT c.revision, c.next_sequence, c.last_message_at, c.head
FROM aforesaid.conversations AS c
WHERE c.owner = %(owner)s AND c.id = %(id)s::uuid AND (c.expires_at IS NULL OR c.expires_at > %(now)s);

-- name: exchange_head
-- Replace the head of the log if it is unchanged.
UPDATE aforesaid.conversations AS c
SET head = %(new)s
WHERE
    c.owner = %(owner)s AND c.id = %(id)s::uuid AND (c.expires_at IS NULL OR c.expires_at > %(now)s)
    AND c.head IS NOT DISTINCT FROM %(old)s
RETURNING c.id::text;

-- name: reseal_messages
-- Replace the stored form of messages; return the replaced ones. Their terms are removed and they wait to be indexed
-- again, because the new form may have none. Lock the conversation first, for its counts. Update it in any case, so
-- that its version changes: see `aforesaid.snapshot`.
WITH old AS (
    SELECT m.at, m.sequence, m.term_count, incoming.body
    FROM unnest(%(times)s::timestamptz[], %(sequences)s::bigint[], %(revisions)s::bigint[], %(bodies)s::text[])
        AS incoming (at, sequence, revision, body)
    JOIN aforesaid.messages AS m
        ON m.owner = %(owner)s AND m.conversation_id = %(id)s::uuid
        AND m.at = incoming.at AND m.sequence = incoming.sequence AND m.revision = incoming.revision
),
exchanged AS (
    UPDATE aforesaid.messages AS m
    SET body = old.body, term_count = CASE WHEN old.term_count = 0 THEN 0 END, terms = NULL
    FROM old
    WHERE
        m.owner = %(owner)s AND m.conversation_id = %(id)s::uuid AND m.at = old.at AND m.sequence = old.sequence
    RETURNING m.sequence, old.term_count
),
counted AS (
    UPDATE aforesaid.conversations AS c
    SET
        indexed_count = c.indexed_count - (SELECT count(*) FROM exchanged WHERE exchanged.term_count > 0),
        term_count = c.term_count - (SELECT coalesce(sum(exchanged.term_count), 0) FROM exchanged)
    WHERE
        c.owner = %(owner)s AND c.id = %(id)s::uuid
        AND EXISTS (SELECT FROM exchanged)
)
SELECT exchanged.sequence FROM exchanged;

-- name: known_messages
-- Return the messages with these ids: see the function. One empty row means none, no row a missing conversation.
SELECT known.at, known.sequence, known.revision, known.stored_at, known.body, known.message_key
FROM aforesaid.known_messages(
    %(name)s, %(owner)s, %(id)s::uuid, %(now)s, %(keys)s::text[]
) AS known;

-- name: delete_if_expired
-- Delete an expired conversation, so that its id can be used again.
DELETE FROM aforesaid.conversations AS c
WHERE c.owner = %(owner)s AND c.id = %(id)s::uuid AND c.expires_at <= %(now)s;

-- name: insert_conversation
-- Insert a record; return no row if its id is taken. Insert a contact for an unknown client, so that the foreign key
-- holds.
WITH contact AS (
    INSERT INTO aforesaid.contacts (owner, id, name, brought, created_at, updated_at)
    SELECT %(owner)s, %(client_id)s::uuid, %(client_name)s, true, %(now)s, %(now)s
    WHERE
        %(client_id)s::uuid IS NOT NULL
        AND NOT EXISTS (
            SELECT FROM aforesaid.conversations AS c WHERE c.owner = %(owner)s AND c.id = %(id)s::uuid
        )
    ON CONFLICT (owner, id) DO NOTHING
)
INSERT INTO aforesaid.conversations (
    owner, owner_name, id, channel, status, priority, client_id, client_name, subject, assigned_to, tags, notes,
    last_message_at, last_message_from, unread_count, message_count, revision, ttl, expires_at, created_at,
    updated_at, name, participants, lineage, next_sequence
) VALUES (
    %(owner)s, %(owner_name)s, %(id)s::uuid, %(channel)s, %(status)s, %(priority)s, %(client_id)s::uuid,
    %(client_name)s, %(subject)s, %(assigned_to)s, %(tags)s::text[], %(notes)s, %(last_message_at)s,
    %(last_message_from)s, %(unread_count)s, %(message_count)s, %(revision)s, %(ttl)s, %(expires_at)s,
    %(created_at)s, %(updated_at)s, %(name)s, %(participants)s::jsonb, %(lineage)s,
    %(next_sequence)s
)
ON CONFLICT (owner, id) DO NOTHING
RETURNING aforesaid.notify(owner, id);

-- name: get_conversation
-- Return the record.
SELECT
    c.id::text, c.channel, c.status, c.priority, c.client_id::text, c.client_name, c.subject, c.assigned_to,
    c.tags, c.notes, c.last_message_at, c.last_message_from, c.unread_count, c.message_count, c.revision,
    c.ttl, c.expires_at, c.created_at, c.updated_at, c.name, c.participants::text, c.lineage
FROM aforesaid.conversations AS c
WHERE c.owner = %(owner)s AND c.id = %(id)s::uuid AND (c.expires_at IS NULL OR c.expires_at > %(now)s);

-- name: await_replication
-- Wait for a synchronous standby as a write does: a commit whose own wait was cancelled is visible without it.
SELECT pg_logical_emit_message(true, 'aforesaid', '');

-- name: get_session
-- Return the record that a session is bound to.
SELECT
    c.id::text, c.channel, c.status, c.priority, c.client_id::text, c.client_name, c.subject, c.assigned_to,
    c.tags, c.notes, c.last_message_at, c.last_message_from, c.unread_count, c.message_count, c.revision,
    c.ttl, c.expires_at, c.created_at, c.updated_at, c.name, c.participants::text, c.lineage
FROM aforesaid.sessions AS s
JOIN aforesaid.conversations AS c ON c.owner = s.owner AND c.id = s.conversation_id
WHERE
    s.owner = %(owner)s AND c.owner = %(owner)s AND s.session_key = %(session)s
    AND (c.expires_at IS NULL OR c.expires_at > %(now)s);

-- name: update_conversation
-- Update the fields named in `given`. Return no row if the conversation is missing or not at the expected revision.
-- Insert a contact for a new client, as in `insert_conversation`.
WITH contact AS (
    INSERT INTO aforesaid.contacts (owner, id, name, brought, created_at, updated_at)
    SELECT c.owner, %(client_id)s::uuid, %(client_name)s, true, %(now)s, %(now)s
    FROM aforesaid.conversations AS c
    WHERE
        c.owner = %(owner)s AND c.id = %(id)s::uuid AND (c.expires_at IS NULL OR c.expires_at > %(now)s)
        AND (%(expected)s::bigint IS NULL OR c.revision = %(expected)s)
        AND %(client_id)s::uuid IS NOT NULL
    ON CONFLICT (owner, id) DO NOTHING
)
UPDATE aforesaid.conversations AS c
SET
    channel = CASE WHEN 'channel' = ANY (%(given)s::text[]) THEN %(channel)s ELSE c.channel END,
    status = CASE WHEN 'status' = ANY (%(given)s::text[]) THEN %(status)s ELSE c.status END,
    priority = CASE WHEN 'priority' = ANY (%(given)s::text[]) THEN %(priority)s ELSE c.priority END,
    client_id = CASE WHEN 'client_id' = ANY (%(given)s::text[]) THEN %(client_id)s::uuid ELSE c.client_id END,
    client_name = CASE WHEN 'client_name' = ANY (%(given)s::text[]) THEN %(client_name)s ELSE c.client_name END,
    subject = CASE WHEN 'subject' = ANY (%(given)s::text[]) THEN %(subject)s ELSE c.subject END,
    assigned_to = CASE WHEN 'assigned_to' = ANY (%(given)s::text[]) THEN %(assigned_to)s ELSE c.assigned_to END,
    tags = CASE WHEN 'tags' = ANY (%(given)s::text[]) THEN %(tags)s::text[] ELSE c.tags END,
    notes = CASE WHEN 'notes' = ANY (%(given)s::text[]) THEN %(notes)s ELSE c.notes END,
    unread_count = CASE WHEN 'unread_count' = ANY (%(given)s::text[]) THEN %(unread_count)s ELSE c.unread_count END,
    ttl = CASE WHEN 'ttl' = ANY (%(given)s::text[]) THEN %(ttl)s ELSE c.ttl END,
    expires_at = CASE WHEN 'ttl' = ANY (%(given)s::text[]) THEN %(expires_at)s ELSE c.expires_at END,
    name = CASE WHEN 'name' = ANY (%(given)s::text[]) THEN %(name)s ELSE c.name END,
    participants = CASE
        WHEN 'participants' = ANY (%(given)s::text[]) THEN %(participants)s::jsonb ELSE c.participants
    END,
    updated_at = %(now)s,
    revision = c.revision + 1
WHERE
    c.owner = %(owner)s AND c.id = %(id)s::uuid AND (c.expires_at IS NULL OR c.expires_at > %(now)s)
    AND (%(expected)s::bigint IS NULL OR c.revision = %(expected)s)
RETURNING
    c.id::text, c.channel, c.status, c.priority, c.client_id::text, c.client_name, c.subject, c.assigned_to,
    c.tags, c.notes, c.last_message_at, c.last_message_from, c.unread_count, c.message_count, c.revision,
    c.ttl, c.expires_at, c.created_at, c.updated_at, c.name, c.participants::text, c.lineage,
    aforesaid.notify(c.owner, c.id);

-- name: find_conversations
-- Return a page of records, most recently active first. NULL disables a filter.
SELECT
    c.id::text, c.channel, c.status, c.priority, c.client_id::text, c.client_name, c.subject, c.assigned_to,
    c.tags, c.notes, c.last_message_at, c.last_message_from, c.unread_count, c.message_count, c.revision,
    c.ttl, c.expires_at, c.created_at, c.updated_at, c.name, c.participants::text, c.lineage
FROM aforesaid.conversations AS c
WHERE
    c.owner = %(owner)s
    AND (c.expires_at IS NULL OR c.expires_at > %(now)s)
    AND (
        %(after_activity)s::timestamptz IS NULL
        OR (c.last_activity, c.id) < (%(after_activity)s::timestamptz, %(after_id)s::uuid)
    )
    AND (%(date_from)s::timestamptz IS NULL OR c.last_activity >= %(date_from)s::timestamptz)
    AND (%(date_to)s::timestamptz IS NULL OR c.last_activity <= %(date_to)s::timestamptz)
    AND (%(client_id)s::uuid IS NULL OR c.client_id = %(client_id)s::uuid)
    AND (%(channel)s::text IS NULL OR c.channel = %(channel)s::text)
    AND (%(status)s::text IS NULL OR c.status = %(status)s::text)
    AND (%(priority)s::text IS NULL OR c.priority = %(priority)s::text)
    AND (%(assigned_to)s::text IS NULL OR c.assigned_to = %(assigned_to)s::text)
    AND (%(tags)s::text[] IS NULL OR c.tags && %(tags)s::text[])
    AND (%(participant)s::text IS NULL OR aforesaid.takes_part(c.participants, %(participant)s::text))
ORDER BY c.last_activity DESC, c.id DESC
LIMIT %(limit)s;

-- name: labels_since
-- Return the mark for the next call with the labels that changed since a mark; all labels if it is 0. The mark is the
-- oldest transaction that was running: what it commits later is reported then. Transactions end in another order than
-- they begin, so a label may be reported twice. A transaction that has not begun is one of another server, from which
-- this database was copied.
WITH seen AS MATERIALIZED (
    SELECT
        pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS mark,
        pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next
),
changed AS (
    SELECT c.id, c.client_name, c.subject
    FROM aforesaid.conversations AS c
    WHERE
        c.owner = %(owner)s AND %(mark)s::bigint > 0
        AND c.label_change >= %(mark)s::bigint AND c.label_change < (SELECT seen.next FROM seen)
    UNION ALL
    SELECT c.id, c.client_name, c.subject
    FROM aforesaid.conversations AS c
    WHERE c.owner = %(owner)s AND %(mark)s::bigint = 0 AND (c.client_name IS NOT NULL OR c.subject IS NOT NULL)
)
SELECT seen.mark, changed.id::text, changed.client_name, changed.subject FROM seen LEFT JOIN changed ON true;

-- name: delete_conversation
-- Delete the record with its messages, sessions and documents; return the counts, which are exact after
-- `lock_to_delete`. With an expected revision, delete only at that one: the first column is the revision of a record
-- that stays.
WITH gone AS (
    DELETE FROM aforesaid.conversations AS c
    WHERE
        c.owner = %(owner)s AND c.id = %(id)s::uuid
        AND (%(expected)s::bigint IS NULL OR c.revision = %(expected)s)
    RETURNING c.owner, c.id, c.message_count, c.indexed_count
),
beside AS (
    SELECT d.kind, count(*) AS number
    FROM aforesaid.documents AS d
    WHERE d.owner = %(owner)s AND d.conversation_id = %(id)s::uuid AND EXISTS (SELECT FROM gone)
    GROUP BY d.kind
)
SELECT
    (
        SELECT c.revision FROM aforesaid.conversations AS c
        WHERE
            c.owner = %(owner)s AND c.id = %(id)s::uuid AND c.revision <> %(expected)s::bigint
            AND NOT EXISTS (SELECT FROM gone)
    ),
    (SELECT count(aforesaid.notify(gone.owner, gone.id)) FROM gone),
    coalesce((SELECT gone.message_count FROM gone), 0),
    coalesce((SELECT gone.indexed_count FROM gone), 0),
    (
        SELECT count(*) FROM aforesaid.sessions AS s
        WHERE s.owner = %(owner)s AND s.conversation_id = %(id)s::uuid AND EXISTS (SELECT FROM gone)
    ),
    coalesce((SELECT array_agg(beside.kind ORDER BY beside.kind) FROM beside), '{}'),
    coalesce((SELECT array_agg(beside.number ORDER BY beside.kind) FROM beside), '{}');

-- name: lock_to_delete
-- Lock one conversation, or all of an owner, until the end of the transaction, so that no data is added.
SELECT c.id FROM aforesaid.conversations AS c
WHERE c.owner = %(owner)s AND (%(id)s::uuid IS NULL OR c.id = %(id)s::uuid)
ORDER BY c.id
FOR UPDATE;

-- name: session_binding
-- Return the conversation that a session is bound to, expired or not.
SELECT s.conversation_id::text FROM aforesaid.sessions AS s
WHERE s.owner = %(owner)s AND s.session_key = %(session)s;

-- name: rebind_session
-- Bind the session to this conversation; return no row if it was meanwhile bound to another than `bound`. Concurrent
-- callers wait for the row of the session, which only roles with a grant can lock.
INSERT INTO aforesaid.sessions AS s (owner, session_key, session_name, conversation_id)
VALUES (%(owner)s, %(session)s, %(session_name)s, %(id)s::uuid)
ON CONFLICT (owner, session_key) DO UPDATE SET conversation_id = excluded.conversation_id
WHERE s.conversation_id = %(bound)s::uuid
RETURNING 1;

-- name: bind_session
-- Bind the session to this conversation; return no row if the conversation is missing.
INSERT INTO aforesaid.sessions (owner, session_key, session_name, conversation_id)
SELECT c.owner, %(session)s, %(session_name)s, c.id
FROM aforesaid.conversations AS c
WHERE c.owner = %(owner)s AND c.id = %(id)s::uuid AND (c.expires_at IS NULL OR c.expires_at > %(now)s)
FOR KEY SHARE OF c
ON CONFLICT (owner, session_key) DO UPDATE SET conversation_id = excluded.conversation_id
RETURNING 1;

-- name: unbind_session
-- Delete the session.
DELETE FROM aforesaid.sessions AS s WHERE s.owner = %(owner)s AND s.session_key = %(session)s;

-- name: get_sessions
-- Return the sessions bound to a conversation; empty and missing as in `known_messages`.
SELECT coalesce(s.session_name, s.session_key)
FROM aforesaid.conversations AS c
LEFT JOIN aforesaid.sessions AS s ON s.owner = %(owner)s AND s.conversation_id = %(id)s::uuid
WHERE c.owner = %(owner)s AND c.id = %(id)s::uuid AND (c.expires_at IS NULL OR c.expires_at > %(now)s);

-- name: restore_conversation
-- Store a record unchanged, replacing an existing one; return its next sequence and its head. Insert a contact for a
-- client, as in `insert_conversation`.
WITH contact AS (
    INSERT INTO aforesaid.contacts (owner, id, name, brought, created_at, updated_at)
    SELECT %(owner)s, %(client_id)s::uuid, %(client_name)s, true, %(now)s, %(now)s
    WHERE %(client_id)s::uuid IS NOT NULL
    ON CONFLICT (owner, id) DO NOTHING
)
INSERT INTO aforesaid.conversations AS c (
    owner, owner_name, id, channel, status, priority, client_id, client_name, subject, assigned_to, tags, notes,
    last_message_at, last_message_from, unread_count, message_count, revision, ttl, expires_at, created_at,
    updated_at, name, participants, lineage, next_sequence
) VALUES (
    %(owner)s, %(owner_name)s, %(id)s::uuid, %(channel)s, %(status)s, %(priority)s, %(client_id)s::uuid,
    %(client_name)s, %(subject)s, %(assigned_to)s, %(tags)s::text[], %(notes)s, %(last_message_at)s,
    %(last_message_from)s, %(unread_count)s, %(message_count)s, %(revision)s, %(ttl)s, %(expires_at)s,
    %(created_at)s, %(updated_at)s, %(name)s, %(participants)s::jsonb, %(lineage)s,
    %(next_sequence)s
)
ON CONFLICT (owner, id) DO UPDATE SET
    channel = excluded.channel, status = excluded.status, priority = excluded.priority,
    client_id = excluded.client_id, client_name = excluded.client_name, subject = excluded.subject,
    assigned_to = excluded.assigned_to, tags = excluded.tags, notes = excluded.notes,
    last_message_at = excluded.last_message_at, last_message_from = excluded.last_message_from,
    unread_count = excluded.unread_count, message_count = excluded.message_count,
    revision = excluded.revision, ttl = excluded.ttl, expires_at = excluded.expires_at,
    created_at = excluded.created_at, updated_at = excluded.updated_at, name = excluded.name,
    participants = excluded.participants, lineage = excluded.lineage
RETURNING c.next_sequence, c.head, aforesaid.notify(c.owner, c.id);

-- name: taken_sequences
-- Return the used sequences from a number on.
SELECT m.sequence FROM aforesaid.messages AS m
WHERE m.owner = %(owner)s AND m.conversation_id = %(id)s::uuid AND m.sequence >= %(least)s;

-- name: restore_messages
-- Insert messages at given positions; return those with a free id.
INSERT INTO aforesaid.messages (
    owner, conversation_id, at, sequence, role, message_key, revision, stored_at, body, term_count, terms
)
SELECT
    %(owner)s, %(id)s::uuid, incoming.at, incoming.sequence, incoming.role, incoming.key, incoming.revision, incoming.stored_at, incoming.body,
    incoming.term_count, incoming.terms::tsvector
FROM unnest(
    %(times)s::timestamptz[], %(sequences)s::bigint[], %(roles)s::text[], %(keys)s::text[],
    %(revisions)s::bigint[], %(stored)s::timestamptz[], %(bodies)b::text[], %(term_counts)s::integer[],
    string_to_array(%(vectors)s, ' | ')
) AS incoming (at, sequence, role, key, revision, stored_at, body, term_count, terms)
ON CONFLICT (owner, conversation_id, message_key) WHERE message_key IS NOT NULL DO NOTHING
RETURNING sequence;

-- name: count_restored
-- Set the next sequence after restored messages and add to the index counts.
UPDATE aforesaid.conversations AS c
SET
    next_sequence = greatest(c.next_sequence, %(last)s::bigint + 1),
    head = coalesce(%(head)s, c.head),
    indexed_count = c.indexed_count + %(indexed)s::bigint,
    term_count = c.term_count + %(all_terms)s::bigint
WHERE c.owner = %(owner)s AND c.id = %(id)s::uuid;

-- name: tail
-- Return the last messages, or the last before a position, newest first: see the function. Empty and missing as in
-- `known_messages`.
SELECT last.at, last.sequence, last.revision, last.stored_at, last.body
FROM aforesaid.tail(
    %(name)s, %(owner)s, %(id)s::uuid, %(now)s, %(limit)s, %(before_at)s::timestamptz, %(before_sequence)s::bigint
) AS last;

-- name: page
-- Return messages from the oldest on: see the function. Empty and missing as in `tail`.
SELECT page.at, page.sequence, page.revision, page.stored_at, page.body
FROM aforesaid.page(
    %(name)s, %(owner)s, %(id)s::uuid, %(now)s, %(limit)s, %(offset)s
) AS page;

-- name: snapshot
-- Return what a context needs: see the function.
SELECT
    found.part, found.at, found.sequence, found.revision, found.stored_at, found.body, found.data,
    (found.conversation).id::text, (found.conversation).channel, (found.conversation).status,
    (found.conversation).priority, (found.conversation).client_id::text, (found.conversation).client_name,
    (found.conversation).subject, (found.conversation).assigned_to, (found.conversation).tags,
    (found.conversation).notes, (found.conversation).last_message_at, (found.conversation).last_message_from,
    (found.conversation).unread_count, (found.conversation).message_count, (found.conversation).revision,
    (found.conversation).ttl, (found.conversation).expires_at, (found.conversation).created_at,
    (found.conversation).updated_at, (found.conversation).name, (found.conversation).participants::text,
    (found.conversation).lineage,
    (found.conversation).head
FROM aforesaid.snapshot(
    %(name)s, %(owner)s, %(id)s::uuid, %(now)s, %(version)s, %(front)s, %(tail)s, %(kind)s, %(after)s, %(limit)s
) AS found;

-- name: use_one_snapshot
-- Use one snapshot for the rest of the transaction.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;

-- name: term_frequencies
-- Return the frequencies of terms and the totals: see the function.
SELECT known.messages, known.terms, known.frequencies, known.expired, known.waiting
FROM aforesaid.term_frequencies(%(name)s, %(owner)s, %(now)s, %(terms)s::text[]) AS known;

-- name: matching_messages
-- Return the messages with some of the terms, best first: see the function.
SELECT
    found.conversation_id::text, found.at, found.sequence, found.role, found.term_count, found.score, found.counts
FROM aforesaid.matching_messages(
    %(name)s, %(owner)s, %(any)s::text[], %(terms)s::text[], %(weights)s::double precision[],
    %(average)s::double precision, %(saturation)s::double precision, %(length)s::double precision,
    %(expired)s::uuid[], %(limit)s
) AS found;

-- name: unindexed_conversations
-- Return conversations with unindexed messages, such as those written by plain SQL.
SELECT DISTINCT m.conversation_id::text
FROM aforesaid.messages AS m
WHERE m.owner = %(owner)s AND m.term_count IS NULL
LIMIT %(limit)s;

-- name: lock_conversation
-- Lock the record until the end of the transaction, as in `aforesaid.turn`.
SELECT c.id::text FROM aforesaid.conversations AS c
WHERE c.owner = %(owner)s AND c.id = %(id)s::uuid
FOR NO KEY UPDATE;

-- name: unindexed_messages
-- Return the unindexed messages of a conversation.
SELECT m.at, m.sequence, m.revision, m.stored_at, m.body
FROM aforesaid.messages AS m
WHERE m.owner = %(owner)s AND m.conversation_id = %(id)s::uuid AND m.term_count IS NULL
LIMIT %(limit)s;

-- name: index_messages
-- Store the terms of messages and add to the index counts.
WITH indexed AS (
    UPDATE aforesaid.messages AS m
    SET term_count = worked_out.term_count, terms = worked_out.terms::tsvector
    FROM unnest(
        %(times)s::timestamptz[], %(sequences)s::bigint[], %(term_counts)s::integer[],
        string_to_array(%(vectors)s, ' | ')
    ) AS worked_out (at, sequence, term_count, terms)
    WHERE
        m.owner = %(owner)s AND m.conversation_id = %(id)s::uuid AND m.at = worked_out.at
        AND m.sequence = worked_out.sequence AND m.term_count IS NULL
    RETURNING m.term_count
)
UPDATE aforesaid.conversations AS c
SET
    indexed_count = c.indexed_count + (SELECT count(*) FROM indexed WHERE indexed.term_count > 0),
    term_count = c.term_count + (SELECT coalesce(sum(indexed.term_count), 0) FROM indexed)
WHERE c.owner = %(owner)s AND c.id = %(id)s::uuid;

-- name: packed_vectors
-- Return and lock documents with vectors that are not unpacked into rows yet.
SELECT d.conversation_id::text, d.key, d.data
FROM aforesaid.documents AS d
WHERE d.owner = %(owner)s AND d.kind = %(kind)s AND NOT d.unrolled AND d.conversation_id IS NOT NULL
LIMIT %(limit)s
FOR NO KEY UPDATE;

-- name: unpack_vectors
-- Unpack the vectors of a document into rows: see the function.
SELECT aforesaid.unpack_vectors(
    %(owner)s, %(id)s::uuid, %(kind)s, %(key)s, %(dimension)s, %(micros)s::bigint[], %(sequences)s::bigint[],
    %(vectors)s::text[]
);

-- name: nearest
-- Return the messages with the most similar vectors: see the function.
SELECT near.conversation_id::text, near.micros, near.sequence, near.similarity
FROM aforesaid.nearest(
    %(name)s, %(owner)s, %(now)s, %(kind)s, %(dimension)s, %(vector)s, %(around)s, %(limit)s
) AS near;

-- name: replace_message
-- Replace the body of a message. Return no row if the conversation or the message is missing, or if the conversation
-- does not have the expected revision or head. Lock the conversation first, for its counts.
WITH moved AS (
    UPDATE aforesaid.conversations AS c
    SET
        revision = c.revision + 1,
        head = coalesce(%(head)s, c.head),
        updated_at = %(now)s,
        indexed_count = c.indexed_count
            - (coalesce(old.term_count, 0) > 0)::integer + (%(term_count)s::integer > 0)::integer,
        term_count = c.term_count - coalesce(old.term_count, 0) + %(term_count)s::integer
    FROM aforesaid.messages AS old
    WHERE
        c.owner = %(owner)s AND c.id = %(id)s::uuid AND (c.expires_at IS NULL OR c.expires_at > %(now)s)
        AND (%(expected)s::bigint IS NULL OR c.revision = %(expected)s)
        AND (%(seen)s::text IS NULL OR coalesce(c.head, '') = %(seen)s)
        AND old.owner = %(owner)s AND old.conversation_id = %(id)s::uuid
        AND old.message_key = %(key)s AND old.sequence = %(sequence)s
    RETURNING c.owner, c.id, c.revision
),
derived AS (
    DELETE FROM aforesaid.documents AS d
    USING moved
    WHERE
        d.owner = %(owner)s AND d.conversation_id = %(id)s::uuid AND moved.id = d.conversation_id
        AND d.kind <> 'open_turns' AND left(d.kind, 10) <> 'app/state/' AND NOT %(keeps_derived)s::boolean
)
UPDATE aforesaid.messages AS m
SET
    role = %(role)s, body = %(body)s, revision = moved.revision, term_count = %(term_count)s::integer,
    terms = %(vector)s::text::tsvector
FROM moved
WHERE
    m.owner = %(owner)s AND m.conversation_id = %(id)s::uuid AND m.message_key = %(key)s
    AND m.sequence = %(sequence)s
RETURNING m.revision, aforesaid.notify(moved.owner, moved.id);

-- name: data_identity
-- Return the identity of the data: a digest of a secret that is created with the schema and copied by a backup.
SELECT encode(sha256('identity'::bytea || k.value), 'hex')
FROM aforesaid.notification_key AS k;

-- name: listen
-- Listen for changes; return the key of the notifications.
SELECT aforesaid.listen();

-- name: notify_listeners
-- Send a payload to all listeners.
SELECT pg_notify(aforesaid.channel(%(key)s), %(payload)s);

-- name: announce_listener
-- Make writers notify: see the function.
SELECT aforesaid.announce_listener();

-- name: open_writers
-- Return transactions that have written and may have seen no listener; with `seen`, those of them still open.
SELECT DISTINCT l.virtualtransaction
FROM pg_locks AS l
WHERE
    l.relation = 'aforesaid.conversations'::regclass AND l.mode = 'RowExclusiveLock' AND l.granted
    AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
    AND l.pid <> pg_backend_pid()
    AND (%(seen)s::text[] IS NULL OR l.virtualtransaction = ANY (%(seen)s::text[]));

-- name: revisions
-- Return the revisions of the owner's conversations, or of some of them.
SELECT c.id::text, c.revision
FROM aforesaid.conversations AS c
WHERE c.owner = %(owner)s AND (%(ids)s::uuid[] IS NULL OR c.id = ANY (%(ids)s::uuid[]));

-- name: put_document
-- Store a document, replacing an existing one; with 0 expected, only if it is missing. Return no row if it exists or
-- the conversation is missing. The lock keeps the conversation from being deleted meanwhile.
WITH place AS (
    SELECT c.id
    FROM aforesaid.conversations AS c
    WHERE c.owner = %(owner)s AND c.id = %(id)s::uuid AND (c.expires_at IS NULL OR c.expires_at > %(now)s)
    FOR KEY SHARE OF c
)
INSERT INTO aforesaid.documents AS d (
    owner, owner_name, conversation_id, kind, key, version, updated_at, data
)
SELECT %(owner)s, %(owner_name)s, %(id)s::uuid, %(kind)s, %(key)s, 1, %(now)s, %(data)s
WHERE %(id)s::uuid IS NULL OR EXISTS (SELECT FROM place)
ON CONFLICT (owner, conversation_id, kind, key) DO UPDATE
    SET version = d.version + 1, updated_at = excluded.updated_at, data = excluded.data
    WHERE %(expected)s::bigint IS NULL
RETURNING d.version;

-- name: replace_document
-- Replace a document at the expected version. Return no row if it is at another, or as above.
UPDATE aforesaid.documents AS d
SET version = d.version + 1, updated_at = %(now)s, data = %(data)s
WHERE
    d.owner = %(owner)s
    AND (d.conversation_id = %(id)s::uuid OR (%(id)s::uuid IS NULL AND d.conversation_id IS NULL))
    AND d.kind = %(kind)s AND d.key = %(key)s AND d.version = %(expected)s
    AND (
        %(id)s::uuid IS NULL OR EXISTS (
            SELECT FROM aforesaid.conversations AS c
            WHERE c.owner = %(owner)s AND c.id = %(id)s::uuid
                AND (c.expires_at IS NULL OR c.expires_at > %(now)s)
        )
    )
RETURNING d.version;

-- name: get_documents
-- Return an owner's documents of a kind: one by its key, or those after a key.
SELECT d.key, d.version, d.updated_at, d.data
FROM aforesaid.documents AS d
WHERE
    d.owner = %(owner)s AND d.conversation_id IS NULL AND d.kind = %(kind)s
    AND (%(key)s::text IS NULL OR d.key = %(key)s::text) AND d.key > %(after)s
ORDER BY d.key
LIMIT %(limit)s;

-- name: get_derived_documents
-- Return a conversation's documents of a kind, as above; one empty row means none, no row a missing conversation.
SELECT d.key, d.version, d.updated_at, d.data
FROM aforesaid.conversations AS c
LEFT JOIN LATERAL (
    SELECT found.key, found.version, found.updated_at, found.data
    FROM aforesaid.documents AS found
    WHERE
        found.owner = %(owner)s AND found.conversation_id = %(id)s::uuid AND found.kind = %(kind)s
        AND (%(key)s::text IS NULL OR found.key = %(key)s::text) AND found.key > %(after)s
    ORDER BY found.key
    LIMIT %(limit)s
) AS d ON true
WHERE c.owner = %(owner)s AND c.id = %(id)s::uuid AND (c.expires_at IS NULL OR c.expires_at > %(now)s)
ORDER BY d.key;

-- name: document_kinds
-- Return the kinds of an owner's documents.
SELECT DISTINCT d.kind COLLATE "C" AS kind FROM aforesaid.documents AS d
WHERE d.owner = %(owner)s AND d.conversation_id IS NULL
UNION
SELECT 'contacts' COLLATE "C"
WHERE EXISTS (SELECT FROM aforesaid.contacts AS p WHERE p.owner = %(owner)s AND NOT p.brought)
ORDER BY kind;

-- name: derived_document_kinds
-- Return the kinds of a conversation's documents; empty and missing as above.
SELECT DISTINCT d.kind
FROM aforesaid.conversations AS c
LEFT JOIN aforesaid.documents AS d ON d.owner = %(owner)s AND d.conversation_id = %(id)s::uuid
WHERE c.owner = %(owner)s AND c.id = %(id)s::uuid AND (c.expires_at IS NULL OR c.expires_at > %(now)s)
ORDER BY d.kind;

-- name: delete_document
-- Delete a document at the expected version or at any; return a row if it was deleted.
DELETE FROM aforesaid.documents AS d
WHERE
    d.owner = %(owner)s
    AND (d.conversation_id = %(id)s::uuid OR (%(id)s::uuid IS NULL AND d.conversation_id IS NULL))
    AND d.kind = %(kind)s AND d.key = %(key)s
    AND (%(expected)s::bigint IS NULL OR d.version = %(expected)s)
    AND (
        %(id)s::uuid IS NULL OR EXISTS (
            SELECT FROM aforesaid.conversations AS c
            WHERE c.owner = %(owner)s AND c.id = %(id)s::uuid
                AND (c.expires_at IS NULL OR c.expires_at > %(now)s)
        )
    )
RETURNING d.version;

-- name: restore_documents
-- Store documents unchanged. Return a row for each; none if their conversation is missing.
WITH place AS (
    SELECT c.id
    FROM aforesaid.conversations AS c
    WHERE c.owner = %(owner)s AND c.id = %(id)s::uuid AND (c.expires_at IS NULL OR c.expires_at > %(now)s)
    FOR KEY SHARE OF c
)
INSERT INTO aforesaid.documents AS d (
    owner, owner_name, conversation_id, kind, key, version, updated_at, data
)
SELECT
    %(owner)s, %(owner_name)s, %(id)s::uuid, given.kind, given.key, given.version, given.updated_at, given.data
FROM unnest(
    %(kinds)s::text[], %(keys)s::text[], %(versions)s::bigint[], %(moments)s::timestamptz[], %(data)s::bytea[]
) AS given (kind, key, version, updated_at, data)
WHERE %(id)s::uuid IS NULL OR EXISTS (SELECT FROM place)
ON CONFLICT (owner, conversation_id, kind, key) DO UPDATE
    SET version = excluded.version, updated_at = excluded.updated_at, data = excluded.data
RETURNING d.version;

-- name: put_contact
-- Store a contact, replacing an existing one; with 0 expected, only if it is missing. Return no row if it exists.
INSERT INTO aforesaid.contacts AS p (
    owner, owner_name, id, name, nicknames, company, email, phone, notes, data, version, created_at, updated_at
) VALUES (
    %(owner)s, %(owner_name)s, %(key)s::uuid, %(name)s, %(nicknames)s::text[], %(company)s, %(email)s, %(phone)s,
    %(notes)s, %(data)s, 1, %(created_at)s, %(now)s
)
ON CONFLICT (owner, id) DO UPDATE
    SET
        owner_name = excluded.owner_name, name = excluded.name, nicknames = excluded.nicknames,
        company = excluded.company, email = excluded.email, phone = excluded.phone, notes = excluded.notes,
        data = excluded.data, version = CASE WHEN p.brought THEN 1 ELSE p.version + 1 END, brought = false,
        created_at = excluded.created_at, updated_at = excluded.updated_at
    WHERE p.brought OR %(expected)s::bigint IS NULL
RETURNING p.version;

-- name: replace_contact
-- Replace a contact at the expected version. Return no row if it is at another.
UPDATE aforesaid.contacts AS p
SET
    name = %(name)s, nicknames = %(nicknames)s::text[], company = %(company)s, email = %(email)s,
    phone = %(phone)s, notes = %(notes)s, data = %(data)s, version = p.version + 1,
    created_at = %(created_at)s, updated_at = %(now)s
WHERE
    p.owner = %(owner)s AND p.id = %(key)s::uuid AND NOT p.brought AND p.version = %(expected)s::bigint
RETURNING p.version;

-- name: get_contacts
-- Return an owner's contacts: one by its id, or those after a text.
SELECT
    p.id::text, p.version, p.updated_at, p.data, p.name, p.nicknames, p.company, p.email, p.phone, p.notes,
    p.created_at
FROM aforesaid.contacts AS p
WHERE
    p.owner = %(owner)s AND NOT p.brought
    AND (%(key)s::uuid IS NULL OR p.id = %(key)s::uuid)
    AND p.id >= coalesce(%(after_id)s::uuid, '00000000-0000-0000-0000-000000000000'::uuid)
    AND p.id::text COLLATE "C" > %(after)s
ORDER BY p.id
LIMIT %(limit)s;

-- name: delete_contact
-- Delete a contact at the expected version or at any; return a row if it was deleted. Its conversations stay, without a
-- client; the foreign key would do the same, but without notifications.
WITH gone AS (
    DELETE FROM aforesaid.contacts AS p
    WHERE
        p.owner = %(owner)s AND p.id = %(key)s::uuid AND NOT p.brought
        AND (%(expected)s::bigint IS NULL OR p.version = %(expected)s)
    RETURNING p.owner, p.id
), let_go AS (
    UPDATE aforesaid.conversations AS c
    SET client_id = NULL, revision = c.revision + 1, updated_at = %(now)s
    FROM gone
    WHERE c.owner = %(owner)s AND c.owner = gone.owner AND c.client_id = gone.id
    RETURNING aforesaid.notify(c.owner, c.id)
)
SELECT gone.id::text, (SELECT count(*) FROM let_go) FROM gone;

-- name: restore_contacts
-- Store contacts unchanged, replacing existing ones.
INSERT INTO aforesaid.contacts AS p (
    owner, owner_name, id, name, nicknames, company, email, phone, notes, data, version, created_at, updated_at
)
SELECT
    %(owner)s, %(owner_name)s, given.id, given.name,
    ARRAY(SELECT jsonb_array_elements_text(given.nicknames)), given.company, given.email, given.phone,
    given.notes, given.data, given.version, given.created_at, given.updated_at
FROM unnest(
    %(keys)s::uuid[], %(names)s::text[], %(nicknames)s::jsonb[], %(companies)s::text[], %(emails)s::text[],
    %(phones)s::text[], %(notes)s::text[], %(data)s::bytea[], %(versions)s::bigint[],
    %(created)s::timestamptz[], %(moments)s::timestamptz[]
) AS given (
    id, name, nicknames, company, email, phone, notes, data, version, created_at, updated_at
)
ON CONFLICT (owner, id) DO UPDATE
    SET
        owner_name = excluded.owner_name, name = excluded.name, nicknames = excluded.nicknames,
        company = excluded.company, email = excluded.email, phone = excluded.phone, notes = excluded.notes,
        data = excluded.data, version = excluded.version, brought = false, created_at = excluded.created_at,
        updated_at = excluded.updated_at
RETURNING p.version;

-- name: purge_owner
-- Delete some of one owner's expired conversations; batches let turns run in between. A conversation stays while a branch
-- of its family is alive.
WITH gone AS (
    DELETE FROM aforesaid.conversations AS c
    WHERE c.owner = %(owner)s AND c.id IN (
        SELECT old.id
        FROM aforesaid.conversations AS old
        WHERE
            old.owner = %(owner)s AND old.expires_at <= %(now)s
            AND NOT EXISTS (
                SELECT FROM aforesaid.conversations AS branch
                WHERE
                    branch.owner = old.owner AND branch.root = coalesce(old.root, old.id)
                    AND (branch.expires_at IS NULL OR branch.expires_at > %(now)s)
            )
        LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED
    )
    RETURNING c.owner, c.id
)
SELECT count(aforesaid.notify(gone.owner, gone.id)) FROM gone;

-- name: purge_all_owners
-- Delete some expired conversations of all owners.
SELECT aforesaid.purge(%(now)s, %(limit)s);

-- name: owners
-- Return the owners with any data other than documents of these kinds, after a given owner, by key.
SELECT found.owner, found.owner_name
FROM aforesaid.owners_after(%(last)s, %(limit)s, %(ignored_kinds)s::text[]) AS found;

-- name: expired
-- Return one owner's conversations that a purge at a given time deletes, by expiry.
SELECT
    c.id::text, c.channel, c.status, c.priority, c.client_id::text, c.client_name, c.subject, c.assigned_to,
    c.tags, c.notes, c.last_message_at, c.last_message_from, c.unread_count, c.message_count, c.revision,
    c.ttl, c.expires_at, c.created_at, c.updated_at, c.name, c.participants::text, c.lineage
FROM aforesaid.conversations AS c
WHERE
    c.owner = %(owner)s AND c.expires_at <= %(by)s
    AND NOT EXISTS (
        SELECT FROM aforesaid.conversations AS branch
        WHERE
            branch.owner = c.owner AND branch.root = coalesce(c.root, c.id)
            AND (branch.expires_at IS NULL OR branch.expires_at > %(by)s)
    )
ORDER BY c.expires_at, c.id
LIMIT %(limit)s;

-- name: family
-- Return the records of all branches with a root, expired or not.
SELECT
    c.id::text, c.channel, c.status, c.priority, c.client_id::text, c.client_name, c.subject, c.assigned_to,
    c.tags, c.notes, c.last_message_at, c.last_message_from, c.unread_count, c.message_count, c.revision,
    c.ttl, c.expires_at, c.created_at, c.updated_at, c.name, c.participants::text, c.lineage
FROM aforesaid.conversations AS c
WHERE c.owner = %(owner)s AND c.root = %(root)s::uuid
ORDER BY c.id;

-- name: kept_expired
-- Return one owner's expired conversations that are kept because a branch of their family is alive.
SELECT
    c.id::text, c.channel, c.status, c.priority, c.client_id::text, c.client_name, c.subject, c.assigned_to,
    c.tags, c.notes, c.last_message_at, c.last_message_from, c.unread_count, c.message_count, c.revision,
    c.ttl, c.expires_at, c.created_at, c.updated_at, c.name, c.participants::text, c.lineage
FROM aforesaid.conversations AS c
WHERE
    c.owner = %(owner)s AND c.expires_at <= %(now)s
    AND EXISTS (
        SELECT FROM aforesaid.conversations AS branch
        WHERE
            branch.owner = c.owner AND branch.root = coalesce(c.root, c.id)
            AND (branch.expires_at IS NULL OR branch.expires_at > %(now)s)
    );

-- name: lock_at_revision
-- Lock a conversation until the end of the transaction; return its revision.
SELECT c.revision FROM aforesaid.conversations AS c
WHERE c.owner = %(owner)s AND c.id = %(id)s::uuid
FOR UPDATE;

-- name: clear_conversations
-- Delete all conversations of an owner; return the numbers of conversations, messages and index entries.
WITH gone AS (
    DELETE FROM aforesaid.conversations AS c WHERE c.owner = %(owner)s
    RETURNING c.owner, c.id, c.message_count, c.indexed_count
)
SELECT
    count(aforesaid.notify(gone.owner, gone.id)), coalesce(sum(gone.message_count), 0)::bigint,
    coalesce(sum(gone.indexed_count), 0)::bigint
FROM gone;

-- name: clear_sessions
-- Delete all sessions of an owner; return their number.
WITH gone AS (DELETE FROM aforesaid.sessions AS s WHERE s.owner = %(owner)s RETURNING 1)
SELECT count(*) FROM gone;

-- name: clear_documents
-- Delete all documents of an owner, including those of conversations; return the number of each kind.
WITH gone AS (DELETE FROM aforesaid.documents AS d WHERE d.owner = %(owner)s RETURNING d.kind)
SELECT gone.kind, count(*) FROM gone GROUP BY gone.kind;

-- name: tally_conversations
-- Count conversations, messages, index entries and sessions of an owner or of one conversation.
SELECT
    count(*), coalesce(sum(c.message_count), 0)::bigint, coalesce(sum(c.indexed_count), 0)::bigint,
    (
        SELECT count(*) FROM aforesaid.sessions AS s
        WHERE s.owner = %(owner)s AND (%(id)s::uuid IS NULL OR s.conversation_id = %(id)s::uuid)
    )
FROM aforesaid.conversations AS c
WHERE c.owner = %(owner)s AND (%(id)s::uuid IS NULL OR c.id = %(id)s::uuid);

-- name: tally_documents
-- Count documents of each kind: of an owner, including those of conversations, or of one conversation.
SELECT d.kind, count(*)
FROM aforesaid.documents AS d
WHERE d.owner = %(owner)s AND (%(id)s::uuid IS NULL OR d.conversation_id = %(id)s::uuid)
GROUP BY d.kind;

-- name: tally_contacts
-- Count an owner's contacts, without placeholders.
SELECT count(*) FROM aforesaid.contacts AS c WHERE c.owner = %(owner)s AND NOT c.brought;

-- name: clear_contacts
-- Delete all contacts of an owner; return their number, without placeholders.
WITH gone AS (DELETE FROM aforesaid.contacts AS c WHERE c.owner = %(owner)s RETURNING c.brought)
SELECT count(*) FILTER (WHERE NOT gone.brought) FROM gone;

-- name: tables
-- Return every table with rows of owners, the constraint of a partition, and whether this role may rewrite it.
SELECT n.nspname, t.relname, pg_get_partition_constraintdef(t.oid), pg_has_role(t.relowner, 'USAGE')
FROM pg_class AS t
JOIN pg_namespace AS n ON n.oid = t.relnamespace
WHERE n.nspname = 'aforesaid' AND t.relkind = 'r' AND t.relname NOT IN ('migrations', 'notification_key')
ORDER BY t.relname;

-- name: delete_placeholder_contacts
-- Delete placeholder contacts without a conversation.
DELETE FROM aforesaid.contacts AS p
WHERE
    p.owner = %(owner)s AND p.brought
    AND NOT EXISTS (
        SELECT FROM aforesaid.conversations AS c WHERE c.owner = p.owner AND c.client_id = p.id
    );

-- name: disk_usage
-- Return the bytes of every table and index; partitions count with their parents.
SELECT
    coalesce(whole.relname, part.relname) AS name,
    sum(CASE part.relkind WHEN 'i' THEN pg_relation_size(part.oid) ELSE pg_table_size(part.oid) END)::bigint
FROM pg_class AS part
JOIN pg_namespace AS n ON n.oid = part.relnamespace
LEFT JOIN pg_class AS whole ON whole.oid = pg_partition_root(part.oid)
WHERE n.nspname = 'aforesaid' AND part.relkind IN ('r', 'i')
GROUP BY 1
ORDER BY 1;
