-- Tables for conversations, messages, sessions, documents and contacts; access rules; the public views.
--
-- Schema `aforesaid` contains the stored data, schema `api` the documented views for plain SQL. The owner is the first
-- column of every key, join and foreign key, so that one owner's rows are stored together.

CREATE SCHEMA aforesaid;
CREATE SCHEMA IF NOT EXISTS api;

CREATE TABLE aforesaid.migrations (
    version integer PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- The key of this database's notifications. Services may read it (see `admit`), other roles may not.
CREATE TABLE aforesaid.notification_key (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    value bytea NOT NULL
);

INSERT INTO aforesaid.notification_key (value)
VALUES (sha256(convert_to(concat(gen_random_uuid(), gen_random_uuid(), gen_random_uuid()), 'UTF8')));

-- Names and time ------------------------------------------------------------------------------
--
-- The SQL functions have unquoted bodies: names are resolved at creation, not with the caller's search path.

-- Return the key of an owner, a session id or a message id. A name that is too long for an index, or looks like a
-- digest, is replaced by its digest, so no two names have the same key. In PL/pgSQL because every statement calls it,
-- and an SQL function that cannot be inlined is slower.
CREATE FUNCTION aforesaid.key_of(p_name text) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF pg_catalog.octet_length(p_name) <= 512 AND NOT pg_catalog.starts_with(p_name, 'sha256/') THEN
        RETURN p_name;
    END IF;
    RETURN 'sha256/' || pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(p_name, 'UTF8')), 'hex');
END
$$;

-- Return the owner of this session: the `sub` of a token checked by a gateway, or else the setting `aforesaid.owner`.
-- Without an owner (NULL), no row is visible.
CREATE FUNCTION aforesaid.current_owner() RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN aforesaid.key_of(coalesce(
    nullif(nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'sub', ''),
    nullif(current_setting('request.jwt.claim.sub', true), ''),
    nullif(current_setting('aforesaid.owner', true), '')
));

-- Return the owners whose rows this transaction sees: those of `append_turns`, or else the one of the session.
--
-- In PL/pgSQL, as `current_participant`: the policies of every statement call both, and preparing the inlined
-- expressions takes longer than calling a function. Operators are qualified, so that no search path replaces them.
CREATE FUNCTION aforesaid.current_owners() RETURNS text[]
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
    IF pg_catalog.current_setting('aforesaid.owners', true) OPERATOR(pg_catalog.<>) '' THEN
        RETURN pg_catalog.current_setting('aforesaid.owners')::pg_catalog.text[];
    END IF;
    RETURN ARRAY[aforesaid.current_owner()];
END
$$;

-- Set the owner (full name, not key) until the end of the transaction.
CREATE FUNCTION aforesaid.set_owner(p_name text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('aforesaid.owner', p_name, true);
END
$$;

-- Return the expiry of a conversation that was active at this time; NULL for never, also if the result exceeds the
-- largest representable year. Days have 24 hours in every time zone.
CREATE FUNCTION aforesaid.expiry(p_ttl interval, p_now timestamptz) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN p_ttl <= timestamp '9999-12-31 23:59:59.999999' - (p_now AT TIME ZONE 'UTC')
    THEN ((p_now AT TIME ZONE 'UTC') + p_ttl) AT TIME ZONE 'UTC'
END;

-- Return the lifetime of conversations inserted by plain SQL: the setting `aforesaid.default_ttl`, such as '90 days' or
-- 'never', or else thirty days.
CREATE FUNCTION aforesaid.default_ttl() RETURNS interval
LANGUAGE sql STABLE
RETURN CASE coalesce(current_setting('aforesaid.default_ttl', true), '')
    WHEN '' THEN interval '30 days'
    WHEN 'never' THEN NULL
    ELSE current_setting('aforesaid.default_ttl')::interval
END;

-- Tables --------------------------------------------------------------------------------------

-- Documents of the kind `contacts`, in columns. `brought` marks a placeholder, which only serves as the target of a
-- conversation's reference and is neither shown nor read. `data` is the document itself if it does not fit the columns:
-- sealed, or of a later release.
CREATE TABLE aforesaid.contacts (
    owner text COLLATE "C" NOT NULL DEFAULT aforesaid.current_owner(),
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    owner_name text,
    name text,
    nicknames text[] NOT NULL DEFAULT '{}'
        CHECK (
            CASE WHEN coalesce(array_ndims(nicknames), 1) = 1 THEN array_position(nicknames, NULL) IS NULL
            ELSE false END
        ),
    company text,
    email text,
    phone text,
    notes text,
    data bytea,
    brought boolean NOT NULL DEFAULT false,
    version bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (owner, id),
    CONSTRAINT contacts_in_time CHECK (
        created_at BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'
        AND updated_at BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'
    )
);

-- `owner_name` is the full name of the owner if `owner` is a digest. `indexed_count` is the number of searchable
-- messages, `term_count` the number of their terms. `head` is the encrypting layer's commitment to the messages of the
-- log and their order.
CREATE TABLE aforesaid.conversations (
    owner text COLLATE "C" NOT NULL,
    id uuid NOT NULL,
    owner_name text,
    channel text NOT NULL CHECK (length(channel) BETWEEN 1 AND 32),
    status text NOT NULL CHECK (status IN ('open', 'pending', 'resolved', 'closed')),
    priority text NOT NULL CHECK (priority IN ('low', 'normal', 'high', 'urgent')),
    client_id uuid,
    client_name text,
    subject text,
    assigned_to text,
    tags text[] NOT NULL
        CHECK (CASE WHEN coalesce(array_ndims(tags), 1) = 1 THEN array_position(tags, NULL) IS NULL ELSE false END),
    notes text,
    last_message_at timestamptz,
    last_message_from text CHECK (last_message_from IN ('user', 'assistant', 'system', 'tool')),
    unread_count bigint NOT NULL CHECK (unread_count >= 0),
    message_count bigint NOT NULL,
    revision bigint NOT NULL,
    next_sequence bigint NOT NULL DEFAULT 1,
    head text,
    indexed_count bigint NOT NULL DEFAULT 0,
    term_count bigint NOT NULL DEFAULT 0,
    ttl interval,
    expires_at timestamptz,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    last_activity timestamptz NOT NULL GENERATED ALWAYS AS (coalesce(last_message_at, created_at)) STORED,
    -- The caller's name for the conversation, from which its id is derived; NULL where the id was generated.
    name text,
    -- The people and agents of the conversation; NULL where only the owner uses it.
    participants jsonb,
    -- The lineage of a branch, as JSON: the conversations that its log continues, the nearest first. `root` is the last.
    lineage text,
    root uuid GENERATED ALWAYS AS ((lineage::jsonb -> -1 ->> 'conversation_id')::uuid) STORED,
    -- The transaction that last changed subject or client name: see `labels_since` in queries.sql.
    label_change bigint,
    PRIMARY KEY (owner, id),
    -- PostgreSQL's timestamps exceed the range of other stores, and include infinity.
    CONSTRAINT conversations_in_time CHECK (
        created_at BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'
        AND updated_at BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'
    ),
    -- The store inserts a contact for an unknown client: see `insert_conversation` in queries.sql.
    CONSTRAINT conversations_client FOREIGN KEY (owner, client_id)
        REFERENCES aforesaid.contacts (owner, id) ON DELETE SET NULL (client_id)
);

CREATE INDEX conversations_by_client ON aforesaid.conversations (owner, client_id) WHERE client_id IS NOT NULL;
CREATE INDEX conversations_by_status ON aforesaid.conversations (owner, status);
CREATE INDEX conversations_by_priority ON aforesaid.conversations (owner, priority);
CREATE INDEX conversations_by_channel ON aforesaid.conversations (owner, channel);
CREATE INDEX conversations_by_last_message ON aforesaid.conversations (owner, last_message_at);
CREATE INDEX conversations_by_creation ON aforesaid.conversations (owner, created_at);
CREATE INDEX conversations_by_activity ON aforesaid.conversations (owner, last_activity, id);
CREATE INDEX conversations_by_root ON aforesaid.conversations (owner, root) WHERE root IS NOT NULL;
CREATE INDEX conversations_by_label ON aforesaid.conversations (owner, label_change) WHERE label_change IS NOT NULL;
CREATE INDEX conversations_by_expiry ON aforesaid.conversations (expires_at) WHERE expires_at IS NOT NULL;

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

-- The log. `at` and `sequence` give the reading order. `body` is the message in its wire format, as text and not as
-- jsonb, which cannot represent NUL and lone surrogates.
--
-- `terms` are the index terms: each with its owner's prefix (see `aforesaid.term_prefix`), its frequency as position, and
-- the weight D, C, B or A for once, twice, three times or more. `term_count` is the number of terms, with repetitions.
-- Both are NULL until the message is indexed.
CREATE TABLE aforesaid.messages (
    owner text COLLATE "C" NOT NULL,
    conversation_id uuid NOT NULL,
    at timestamptz NOT NULL,
    sequence bigint NOT NULL,
    role text NOT NULL CHECK (role IN ('user', 'assistant', 'system', 'tool')),
    message_key text COLLATE "C",
    revision bigint NOT NULL,
    stored_at timestamptz NOT NULL,
    body text NOT NULL,
    term_count integer,
    terms tsvector,
    PRIMARY KEY (owner, conversation_id, at, sequence),
    FOREIGN KEY (owner, conversation_id) REFERENCES aforesaid.conversations (owner, id) ON DELETE CASCADE
) PARTITION BY HASH (owner);

CREATE UNIQUE INDEX messages_by_key ON aforesaid.messages (owner, conversation_id, message_key)
    WHERE message_key IS NOT NULL;

-- New terms go to a pending list, which every search reads and which is merged when it is full. Small, so that neither
-- the search nor the turn that fills it takes long.
CREATE INDEX messages_by_terms ON aforesaid.messages USING gin (terms)
    WITH (fastupdate = on, gin_pending_list_limit = 64);
CREATE INDEX messages_without_terms ON aforesaid.messages (owner, conversation_id) WHERE term_count IS NULL;

-- `session_name` is the full session id if `session_key` is a digest.
CREATE TABLE aforesaid.sessions (
    owner text COLLATE "C" NOT NULL,
    session_key text COLLATE "C" NOT NULL,
    session_name text,
    conversation_id uuid NOT NULL,
    PRIMARY KEY (owner, session_key),
    FOREIGN KEY (owner, conversation_id) REFERENCES aforesaid.conversations (owner, id) ON DELETE CASCADE
);

CREATE INDEX sessions_by_conversation ON aforesaid.sessions (owner, conversation_id);

-- Documents: the owner's, without a conversation, or derived from one and deleted with it. `owner_name` as in
-- conversations: an owner may have documents only.
CREATE TABLE aforesaid.documents (
    owner text COLLATE "C" NOT NULL,
    conversation_id uuid,
    kind text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    owner_name text,
    version bigint NOT NULL CHECK (version >= 1),
    updated_at timestamptz NOT NULL,
    data bytea NOT NULL,
    CONSTRAINT documents_by_key UNIQUE NULLS NOT DISTINCT (owner, conversation_id, kind, key),
    FOREIGN KEY (owner, conversation_id) REFERENCES aforesaid.conversations (owner, id) ON DELETE CASCADE
) PARTITION BY HASH (owner);

-- Return whether the participant takes part and has not left. A row without participants is the owner's alone.
CREATE FUNCTION aforesaid.takes_part(p_participants jsonb, p_participant text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM jsonb_array_elements(p_participants) AS one
        WHERE one ->> 'id' = p_participant AND coalesce(one ->> 'role', 'member') <> 'left'
    );
END
$$;

-- Return the participant of this session: the claim `participant` of a token checked by a gateway, or else the setting
-- `aforesaid.participant`; NULL for the owner.
CREATE FUNCTION aforesaid.named_participant() RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN coalesce(
    nullif(nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'participant', ''),
    nullif(current_setting('aforesaid.participant', true), '')
);

CREATE FUNCTION aforesaid.current_participant() RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
    IF pg_catalog.current_setting('request.jwt.claims', true) OPERATOR(pg_catalog.<>) ''
        OR pg_catalog.current_setting('aforesaid.participant', true) OPERATOR(pg_catalog.<>) ''
    THEN
        RETURN aforesaid.named_participant();
    END IF;
    RETURN NULL;
END
$$;

-- Return whether the participant may read the message at this place: `Participant.sees`.
CREATE FUNCTION aforesaid.sees(p_participants jsonb, p_participant text, p_at timestamptz, p_sequence bigint)
RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM jsonb_array_elements(p_participants) AS one
        WHERE
            one ->> 'id' = p_participant AND coalesce(one ->> 'role', 'member') <> 'left'
            AND (
                one -> 'visible_from' IS NULL
                OR (p_at, p_sequence) >= (
                    timestamptz 'epoch' + (one -> 'visible_from' ->> 0)::bigint * interval '1 microsecond',
                    (one -> 'visible_from' ->> 1)::bigint
                )
            )
    );
END
$$;

-- Return whether the participant may read this message. A function, so that a session without a participant does not
-- prepare its query.
CREATE FUNCTION aforesaid.sees_message(
    p_participant text, p_owner text, p_id uuid, p_at timestamptz, p_sequence bigint
) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM aforesaid.conversations AS c
        WHERE
            c.owner = p_owner AND c.id = p_id
            AND aforesaid.sees(c.participants, p_participant, p_at, p_sequence)
    );
END
$$;

-- Row-level security --------------------------------------------------------------------------

-- Every table shows an owner's rows to that owner only, even to the role that owns the table. Operators see all rows if
-- two conditions hold: they are (or run a function of) the role that created the schema, and they set
-- `aforesaid.operator`. The setting alone grants nothing.
--
-- The conditions are sub-selects, so that they are evaluated once per statement, not once per row. The owners are no
-- condition for an index: queries name their owner, and a list of owners makes every lookup slower.
CREATE FUNCTION aforesaid.enable_row_security(p_table text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('ALTER TABLE aforesaid.%I ENABLE ROW LEVEL SECURITY', p_table);
    EXECUTE format('ALTER TABLE aforesaid.%I FORCE ROW LEVEL SECURITY', p_table);
    EXECUTE format(
        'CREATE POLICY own_rows ON aforesaid.%I'
        ' USING (array_position((SELECT aforesaid.current_owners()), owner) IS NOT NULL)'
        ' WITH CHECK (array_position((SELECT aforesaid.current_owners()), owner) IS NOT NULL)', p_table);
    EXECUTE format(
        'CREATE POLICY operators ON aforesaid.%I TO CURRENT_ROLE'
        ' USING ((SELECT current_setting(''aforesaid.operator'', true)) = ''on'')', p_table);
END
$$;

-- Under row-level security, the server uses an index only for conditions of the policy itself or for leakproof
-- operators. `@@` is not leakproof. So the search is the policy of the partitions: a partition that is named directly
-- has its own policy, not its parent's, and shows the owner's messages with one of the terms in the setting
-- `aforesaid.terms`. Only services may name partitions.
--
-- The policy adds the owner's prefix to every index lookup. So other owners' data affects neither the results nor the
-- time.

-- Return the prefix of an owner's terms: 48 bits of a digest, so that collisions are rare.
CREATE FUNCTION aforesaid.term_prefix(p_owner text) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN left(encode(sha256(convert_to(p_owner, 'UTF8')), 'base64'), 8);
END
$$;

-- Return a term of an owner as a query, with any characters quoted.
CREATE FUNCTION aforesaid.term_query(p_prefix text, p_term text) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN '''' || replace(replace(p_prefix || p_term, '\', '\\'), '''', '''''') || '''';
END
$$;

-- Return a query for any of the terms in the setting, as terms of this owner; NULL finds nothing. Grouped, because the
-- server evaluates a chain of ORs by recursion.
CREATE FUNCTION aforesaid.search_query(p_owner text) RETURNS tsquery
LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    prefix text := aforesaid.term_prefix(p_owner);
BEGIN
    RETURN (
        SELECT string_agg(groups.any_of, ' | ')
        FROM (
            SELECT '(' || string_agg(aforesaid.term_query(prefix, asked.term), ' | ') || ')' AS any_of
            FROM unnest(string_to_array(nullif(current_setting('aforesaid.terms', true), ''), ' '))
                WITH ORDINALITY AS asked (term, place)
            GROUP BY asked.place / 100
        ) AS groups
    )::tsquery;
END
$$;

-- Set the search terms until the end of the transaction.
CREATE FUNCTION aforesaid.set_search_terms(p_terms text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('aforesaid.terms', array_to_string(p_terms, ' '), true);
END
$$;

CREATE FUNCTION aforesaid.enable_search_policy(p_table text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('ALTER TABLE aforesaid.%I ENABLE ROW LEVEL SECURITY', p_table);
    EXECUTE format('ALTER TABLE aforesaid.%I FORCE ROW LEVEL SECURITY', p_table);
    EXECUTE format(
        'CREATE POLICY matching_rows ON aforesaid.%I FOR SELECT USING ('
        ' owner = (SELECT aforesaid.current_owner())'
        ' AND terms @@ (SELECT aforesaid.search_query(aforesaid.current_owner())))', p_table);
END
$$;

DO $$
DECLARE
    parted text;
    name text;
BEGIN
    FOREACH parted IN ARRAY ARRAY['messages', 'documents'] LOOP
        FOR part IN 0..15 LOOP
            name := parted || '_' || lpad(part::text, 2, '0');
            EXECUTE format(
                'CREATE TABLE aforesaid.%I PARTITION OF aforesaid.%I'
                ' FOR VALUES WITH (MODULUS 16, REMAINDER %s)', name, parted, part);
            IF parted = 'messages' THEN
                PERFORM aforesaid.enable_search_policy(name);
            ELSE
                PERFORM aforesaid.enable_row_security(name);
            END IF;
        END LOOP;
    END LOOP;
    FOREACH name IN ARRAY ARRAY['contacts', 'conversations', 'messages', 'sessions', 'documents'] LOOP
        PERFORM aforesaid.enable_row_security(name);
    END LOOP;
END
$$;

-- A session with a participant sees the conversations in which they take part, and nothing else of the owner. The
-- owner's sessions have none. Partitions need no such policy: only services may name them, and they act for owners.
CREATE POLICY participants ON aforesaid.contacts AS RESTRICTIVE
    USING ((SELECT aforesaid.current_participant()) IS NULL);
CREATE POLICY participants ON aforesaid.conversations AS RESTRICTIVE USING (
    (SELECT aforesaid.current_participant()) IS NULL
    OR aforesaid.takes_part(participants, (SELECT aforesaid.current_participant()))
);
CREATE POLICY participants ON aforesaid.messages AS RESTRICTIVE USING (
    (SELECT aforesaid.current_participant()) IS NULL
    OR aforesaid.sees_message(
        (SELECT aforesaid.current_participant()), messages.owner, messages.conversation_id, messages.at, messages.sequence
    )
);
CREATE POLICY participants ON aforesaid.sessions AS RESTRICTIVE USING (
    (SELECT aforesaid.current_participant()) IS NULL
    OR EXISTS (
        SELECT FROM aforesaid.conversations AS c
        WHERE c.owner = sessions.owner AND c.id = sessions.conversation_id
    )
);
CREATE POLICY participants ON aforesaid.documents AS RESTRICTIVE USING (
    (SELECT aforesaid.current_participant()) IS NULL
    OR EXISTS (
        SELECT FROM aforesaid.conversations AS c
        WHERE c.owner = documents.owner AND c.id = documents.conversation_id
    )
);

-- The search for roles without row-level security: a superuser, or a role with BYPASSRLS.
CREATE FUNCTION aforesaid.search_condition(p_part text) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF row_security_active('aforesaid.' || quote_ident(p_part)) THEN
        RETURN '';
    END IF;
    RETURN ' AND m.terms @@ (SELECT aforesaid.search_query($1))';
END
$$;

-- Return the partition with an owner's messages.
CREATE FUNCTION aforesaid.partition_of(p_owner text) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
    FOR part IN 0..15 LOOP
        IF satisfies_hash_partition('aforesaid.messages'::regclass, 16, part, p_owner COLLATE "C") THEN
            RETURN 'messages_' || lpad(part::text, 2, '0');
        END IF;
    END LOOP;
END
$$;

-- ANALYZE would copy samples of messages into the server's statistics, where they are never deleted.
CREATE FUNCTION aforesaid.disable_statistics(p_table text, p_columns text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY p_columns LOOP
        EXECUTE format('ALTER TABLE aforesaid.%I ALTER COLUMN %I SET STATISTICS 0', p_table, name);
    END LOOP;
END
$$;

SELECT aforesaid.disable_statistics('messages', ARRAY['body', 'message_key', 'terms']);
SELECT aforesaid.disable_statistics('sessions', ARRAY['session_key', 'session_name']);
SELECT aforesaid.disable_statistics('documents', ARRAY['key', 'data']);
SELECT aforesaid.disable_statistics(
    'contacts', ARRAY['name', 'nicknames', 'company', 'email', 'phone', 'notes', 'data']);
SELECT aforesaid.disable_statistics(
    'conversations', ARRAY['client_name', 'subject', 'assigned_to', 'tags', 'notes', 'name', 'participants']);

-- Grant a role access to schema `api`. With an owner, policies restrict the role to that owner, whatever its settings:
-- for people and tools with their own SQL. Without an owner, the role may set any owner: for a gateway that checks
-- tokens. A service runs the store itself. Only services read and write documents; other roles may only delete
-- documents derived from a history that they replace.
CREATE FUNCTION aforesaid.admit(p_role name, p_owner text DEFAULT NULL, p_service boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    pin text := 'only_' || p_role;
    derived text := 'derived_' || p_role;
    guarded text;
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA api, aforesaid TO %I', p_role);
    EXECUTE format(
        'GRANT SELECT, INSERT, UPDATE, DELETE ON api.conversations, api.contacts, api.conversation_sessions,'
        ' aforesaid.conversations, aforesaid.contacts, aforesaid.messages, aforesaid.sessions TO %I', p_role);
    EXECUTE format('GRANT SELECT (owner, conversation_id), DELETE ON aforesaid.documents TO %I', p_role);
    EXECUTE format('DROP POLICY IF EXISTS %I ON aforesaid.documents', derived);
    EXECUTE format('GRANT EXECUTE ON FUNCTION aforesaid.notify_watchers TO %I', p_role);
    IF NOT p_service THEN
        EXECUTE format(
            'CREATE POLICY %I ON aforesaid.documents AS RESTRICTIVE TO %I USING (conversation_id IS NOT NULL)',
            derived, p_role);
    END IF;
    IF p_service THEN
        EXECUTE format(
            'GRANT SELECT, INSERT, UPDATE, DELETE ON aforesaid.documents TO %I', p_role);
        EXECUTE format('GRANT SELECT ON aforesaid.migrations, aforesaid.notification_key TO %I', p_role);
        EXECUTE format('GRANT EXECUTE ON FUNCTION aforesaid.owners_after, aforesaid.purge TO %I', p_role);
    END IF;
    FOR guarded IN
        SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'aforesaid.messages'::regclass AND c.relkind = 'r'
    LOOP
        EXECUTE format('DROP POLICY IF EXISTS %I ON aforesaid.%I', pin, guarded);
        IF p_service THEN
            EXECUTE format('GRANT SELECT ON aforesaid.%I TO %I', guarded, p_role);
        END IF;
        -- Restrictive policies apply before the others, so this one contains the search too.
        IF p_owner IS NOT NULL THEN
            EXECUTE format(
                'CREATE POLICY %I ON aforesaid.%I AS RESTRICTIVE FOR SELECT TO %I'
                ' USING (owner = %L AND terms @@ (SELECT aforesaid.search_query(%L)))',
                pin, guarded, p_role, aforesaid.key_of(p_owner), aforesaid.key_of(p_owner));
        END IF;
    END LOOP;
    IF p_service AND to_regclass('aforesaid.vectors') IS NOT NULL THEN
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON aforesaid.vectors TO %I', p_role);
    END IF;
    FOREACH guarded IN ARRAY ARRAY['contacts', 'conversations', 'messages', 'sessions', 'documents', 'vectors'] LOOP
        CONTINUE WHEN to_regclass('aforesaid.' || guarded) IS NULL;
        EXECUTE format('DROP POLICY IF EXISTS %I ON aforesaid.%I', pin, guarded);
        IF p_owner IS NOT NULL THEN
            EXECUTE format(
                'CREATE POLICY %I ON aforesaid.%I AS RESTRICTIVE TO %I'
                ' USING (owner = %L) WITH CHECK (owner = %L)',
                pin, guarded, p_role, aforesaid.key_of(p_owner), aforesaid.key_of(p_owner));
        END IF;
    END LOOP;
END
$$;

-- The log's rules ------------------------------------------------------------------------------

-- Notifications reach every role that may connect, even without a grant, and every role can send them. So the channel's
-- name cannot be guessed, and a notification consists of keyed digests: it reveals nothing without the key, and a
-- watcher reads the store before it reports a change.

-- Return a tag for notifications: without the key, it can neither be computed nor interpreted.
CREATE FUNCTION aforesaid.tag(p_key bytea, p_kind text, p_name text) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN pg_catalog.left(
        pg_catalog.encode(
            pg_catalog.sha256(p_key || pg_catalog.convert_to(p_kind || ' ' || p_name, 'UTF8')), 'hex'),
        32);
END
$$;

-- Return the channel. A function passes it to LISTEN and NOTIFY, so that it does not appear in `pg_stat_activity`.
CREATE FUNCTION aforesaid.channel(p_key bytea) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN 'aforesaid_' || aforesaid.tag(p_key, 'channel', '');
END
$$;

-- Listen for changes from now on; return the key of the notifications.
CREATE FUNCTION aforesaid.listen() RETURNS bytea
LANGUAGE plpgsql AS $$
DECLARE
    key bytea;
BEGIN
    SELECT k.value INTO STRICT key FROM aforesaid.notification_key AS k;
    EXECUTE format('LISTEN %I', aforesaid.channel(key));
    RETURN key;
END
$$;

-- Tell writers that this session listens, until it ends. Without a listener they do not notify, because the server
-- commits notifying transactions one after the other. Return false if the lock is not available now. Any role can hold
-- an advisory lock for any time, so nothing waits for this one; while another role holds it, writers notify.
CREATE FUNCTION aforesaid.announce_listener() RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN pg_try_advisory_lock_shared(1380142167);
END
$$;

-- Notify watchers of a changed or deleted conversation, if a session listens: the lock of `announce_listener` is not available
-- then. Two concurrent writers may notify without need.
CREATE FUNCTION aforesaid.notify(p_owner text, p_id uuid) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF pg_try_advisory_lock(1380142167) AND pg_advisory_unlock(1380142167) THEN
        RETURN;
    END IF;
    PERFORM aforesaid.notify_watchers(p_owner, p_id);
END
$$;

-- Runs with the rights of the schema's owner: a role that writes conversations needs no access to the key.
CREATE FUNCTION aforesaid.notify_watchers(p_owner text, p_id uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    key bytea;
BEGIN
    SELECT k.value INTO STRICT key FROM aforesaid.notification_key AS k;
    PERFORM pg_notify(
        aforesaid.channel(key),
        aforesaid.tag(key, 'owner', p_owner) || ' ' || aforesaid.tag(key, 'conversation', p_id::text));
END
$$;

-- Store one turn completely or not at all. The record is locked, so turns are serialized. The unique index detects
-- known ids on insert; only a turn with ids known in advance, or with another revision than expected, is checked
-- before, and only for these ids. `state` is the result:
--   stored    the messages have the numbers from `sequence` on, and `stamp` if they had no time
--   known     ids other than those in p_known_keys are known; nothing was stored
--   moved     the revision is not the expected one; nothing was stored
--   missing   the conversation is missing
-- `p_rewrite` replaces all messages. Times and keys are NULL if no message has one. `p_name` is the owner (full name,
-- not key); NULL keeps the owner of the session. `p_terms` and `p_term_counts` are the index terms of each message if
-- its time is `p_now`; NULL means not analysed yet.
CREATE FUNCTION aforesaid.turn(
    p_name text, p_owner text, p_id uuid, p_now timestamptz, p_expected bigint, p_rewrite boolean,
    p_known_keys text[], p_known_sequences bigint[],
    p_roles text[], p_times timestamptz[], p_keys text[], p_bodies text[],
    p_terms text[] DEFAULT NULL, p_term_counts integer[] DEFAULT NULL, p_head text DEFAULT NULL,
    p_seen text DEFAULT NULL,
    OUT state text, OUT sequence bigint, OUT stamp timestamptz, OUT conversation aforesaid.conversations
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    size bigint := cardinality(p_bodies);
    latest_at timestamptz;
    latest_role text;
    number integer;
    put bigint;
    moved boolean;
BEGIN
    IF p_name IS NOT NULL THEN
        PERFORM aforesaid.set_owner(p_name);
    END IF;
    SELECT c.* INTO conversation FROM aforesaid.conversations AS c
    WHERE c.owner = p_owner AND c.id = p_id AND (c.expires_at IS NULL OR c.expires_at > p_now)
    FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        state := 'missing';
        RETURN;
    END IF;
    -- A repeated turn succeeds at any revision: only a turn with new messages can conflict. `p_seen` is the head that
    -- the turn was sealed after, empty for none.
    moved := coalesce(conversation.revision <> p_expected, false)
        OR coalesce(p_seen <> coalesce(conversation.head, ''), false);
    IF NOT p_rewrite AND (p_known_keys IS NOT NULL OR (p_keys IS NOT NULL AND moved)) THEN
        IF aforesaid.known_ids_differ(p_owner, p_id, p_keys, p_known_keys, p_known_sequences) THEN
            state := 'known';
            RETURN;
        END IF;
    END IF;
    IF moved THEN
        state := 'moved';
        RETURN;
    END IF;
    state := 'stored';
    sequence := conversation.next_sequence;
    IF p_rewrite THEN
        DELETE FROM aforesaid.messages AS m WHERE m.owner = p_owner AND m.conversation_id = p_id;
        DELETE FROM aforesaid.documents AS d WHERE d.owner = p_owner AND d.conversation_id = p_id;
        conversation.last_message_at := NULL;
        conversation.last_message_from := NULL;
        conversation.unread_count := 0;
        conversation.message_count := 0;
        conversation.indexed_count := 0;
        conversation.term_count := 0;
        conversation.head := NULL;
    ELSIF size = 0 THEN
        RETURN;
    END IF;
    -- The rules of `conversations.stamp_for` and `conversations.extended`.
    stamp := p_now;
    IF conversation.last_message_at > p_now AND conversation.last_message_at <= p_now + interval '1 minute' THEN
        stamp := conversation.last_message_at;
        -- The day is one of the terms. Across midnight, the next search computes the terms.
        IF (stamp AT TIME ZONE 'UTC')::date <> (p_now AT TIME ZONE 'UTC')::date THEN
            p_terms := NULL;
            p_term_counts := NULL;
        END IF;
    END IF;
    -- The unique index detects known ids. A query before could read the whole log if that has grown since the last
    -- ANALYZE.
    INSERT INTO aforesaid.messages (
        owner, conversation_id, at, sequence, role, message_key, revision, stored_at, body, term_count, terms
    )
    SELECT
        p_owner, p_id, coalesce(incoming.at, stamp), conversation.next_sequence + incoming.place - 1, incoming.role,
        incoming.key, conversation.revision + 1, p_now, incoming.body, incoming.term_count, incoming.terms::tsvector
    FROM unnest(p_roles, p_times, p_keys, p_bodies, p_term_counts, p_terms)
        WITH ORDINALITY AS incoming (role, at, key, body, term_count, terms, place)
    ON CONFLICT (owner, conversation_id, message_key) WHERE message_key IS NOT NULL DO NOTHING;
    GET DIAGNOSTICS put = ROW_COUNT;
    IF put < size THEN
        IF p_rewrite THEN
            RAISE unique_violation USING MESSAGE = 'an id stands twice in what is put, and nothing was changed';
        END IF;
        IF put > 0 THEN  -- the others go again
            DELETE FROM aforesaid.messages AS m
            USING unnest(p_roles, p_times) WITH ORDINALITY AS incoming (role, at, place)
            WHERE
                m.owner = p_owner AND m.conversation_id = p_id AND m.at = coalesce(incoming.at, stamp)
                AND m.sequence = conversation.next_sequence + incoming.place - 1;
        END IF;
        state := 'known';
        RETURN;
    END IF;
    IF p_term_counts IS NOT NULL THEN
        FOREACH number IN ARRAY p_term_counts LOOP
            conversation.indexed_count := conversation.indexed_count + (number > 0)::integer;
            conversation.term_count := conversation.term_count + number;
        END LOOP;
    END IF;
    latest_at := stamp;
    latest_role := p_roles[size];
    IF p_times IS NOT NULL THEN
        SELECT coalesce(incoming.at, stamp), incoming.role INTO latest_at, latest_role
        FROM unnest(p_roles, p_times) WITH ORDINALITY AS incoming (role, at, place)
        ORDER BY 1 DESC, incoming.place DESC
        LIMIT 1;
    END IF;
    IF conversation.last_message_at > latest_at OR size = 0 THEN
        latest_at := conversation.last_message_at;
        latest_role := conversation.last_message_from;
    END IF;
    UPDATE aforesaid.conversations AS c
    SET
        last_message_at = latest_at,
        last_message_from = latest_role,
        unread_count = conversation.unread_count + size,
        message_count = conversation.message_count + size,
        indexed_count = conversation.indexed_count,
        term_count = conversation.term_count,
        next_sequence = conversation.next_sequence + size,
        head = coalesce(p_head, conversation.head),
        revision = conversation.revision + 1,
        updated_at = p_now,
        expires_at = aforesaid.expiry(conversation.ttl, p_now)
    WHERE c.owner = p_owner AND c.id = p_id
    RETURNING c.* INTO conversation;
    PERFORM aforesaid.notify(p_owner, p_id);
END
$$;

-- Store turns of several owners and conversations, each completely or not at all. Return a row for every stored turn.
-- A turn without a row needs `turn`, which gives the reason. So do turns with known ids: then the whole call fails.
--
-- Turn n consists of the messages from p_firsts[n] to p_lasts[n]. The turns belong to different conversations and are
-- ordered by owner and id, as all callers lock conversations in this order.
--
-- The planner must look up the conversations one by one, whatever the statistics say: the settings leave no other join,
-- and the conditions on `size` reduce the estimated number of turns.
CREATE FUNCTION aforesaid.append_turns(
    p_owners text[], p_ids uuid[], p_times timestamptz[], p_expected bigint[], p_seen text[], p_heads text[],
    p_firsts integer[], p_lasts integer[], p_indexed integer[], p_all_terms integer[],
    p_roles text[], p_keys text[], p_bodies text[], p_terms text[], p_term_counts integer[]
) RETURNS TABLE (place bigint, conversation aforesaid.conversations)
LANGUAGE plpgsql
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET random_page_cost = 0 SET jit = off AS $$
BEGIN
    PERFORM aforesaid.set_owners(p_owners);
    RETURN QUERY
        WITH moved AS (
            UPDATE aforesaid.conversations AS c
            SET
                last_message_at = greatest(c.last_message_at, turn.now),
                last_message_from = p_roles[turn.last],
                unread_count = c.unread_count + turn.size,
                message_count = c.message_count + turn.size,
                indexed_count = c.indexed_count + turn.indexed,
                term_count = c.term_count + turn.all_terms,
                next_sequence = c.next_sequence + turn.size,
                head = coalesce(turn.head, c.head),
                revision = c.revision + 1,
                updated_at = turn.now,
                expires_at = aforesaid.expiry(c.ttl, turn.now)
            FROM (
                SELECT given.*, given.last - given.first + 1 AS size
                FROM unnest(
                    p_owners, p_ids, p_times, p_expected, p_seen, p_heads, p_firsts, p_lasts, p_indexed, p_all_terms
                ) WITH ORDINALITY AS given (
                    owner, id, now, expected, seen, head, first, last, indexed, all_terms, place
                )
            ) AS turn
            WHERE
                c.owner = turn.owner AND c.id = turn.id AND turn.size > 0 AND turn.size < 1000000
                AND (c.expires_at IS NULL OR c.expires_at > turn.now)
                AND (turn.expected IS NULL OR c.revision = turn.expected)
                AND (turn.seen IS NULL OR coalesce(c.head, '') = turn.seen)
                -- The day is one of the terms, and a log that ends in the future has rules of its own: see `turn`.
                AND (c.last_message_at IS NULL OR c.last_message_at <= turn.now)
            RETURNING turn.place, turn.first, turn.last, turn.now, c AS conversation
        ),
        stored AS (
            INSERT INTO aforesaid.messages (
                owner, conversation_id, at, sequence, role, message_key, revision, stored_at, body, term_count, terms
            )
            SELECT
                (moved.conversation).owner, (moved.conversation).id, moved.now,
                (moved.conversation).next_sequence - (moved.last - moved.first + 1) + incoming.number - 1,
                incoming.role, incoming.key, (moved.conversation).revision, moved.now, incoming.body,
                incoming.term_count, incoming.terms::tsvector
            FROM moved
            CROSS JOIN LATERAL unnest(
                p_roles[moved.first:moved.last], p_keys[moved.first:moved.last], p_bodies[moved.first:moved.last],
                p_term_counts[moved.first:moved.last], p_terms[moved.first:moved.last]
            ) WITH ORDINALITY AS incoming (role, key, body, term_count, terms, number)
            ON CONFLICT (owner, conversation_id, message_key) WHERE message_key IS NOT NULL DO NOTHING
            RETURNING 1
        )
        SELECT moved.place, moved.conversation FROM moved
        WHERE aforesaid.all_stored((SELECT count(*) FROM stored), (SELECT sum(m.last - m.first + 1) FROM moved AS m));
    IF NOT (pg_try_advisory_lock(1380142167) AND pg_advisory_unlock(1380142167)) THEN  -- as in `notify`
        PERFORM aforesaid.notify_watchers(changed.owner, changed.id)
        FROM unnest(p_owners, p_ids) AS changed (owner, id);
    END IF;
END
$$;

-- Set the owners (keys) of a batch until the end of the transaction.
CREATE FUNCTION aforesaid.set_owners(p_owners text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('aforesaid.owners', p_owners::text, true);
END
$$;

-- Return true if all messages of a batch were stored, or else fail: an id of one of them is known.
CREATE FUNCTION aforesaid.all_stored(p_stored bigint, p_given bigint) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF p_stored <> p_given THEN
        RAISE unique_violation USING MESSAGE = 'a message id of these turns is known, and nothing was stored';
    END IF;
    RETURN true;
END
$$;

-- Set the owner (full name, not key) and return whether the conversation exists.
CREATE FUNCTION aforesaid.has_conversation(p_name text, p_owner text, p_id uuid, p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM aforesaid.set_owner(p_name);
    RETURN EXISTS (
        SELECT FROM aforesaid.conversations AS c
        WHERE c.owner = p_owner AND c.id = p_id AND (c.expires_at IS NULL OR c.expires_at > p_now)
    );
END
$$;

-- If a log has grown since the last ANALYZE, the planner may choose any index or fetch the whole conversation.
-- `messages_with_keys`, `tail` and `page` leave no choice: their results have the order of the intended index, and sorting is
-- disabled. JIT compilation is disabled because it never pays off here.

-- Return the messages with these ids. A range condition, because with an equality the order would be ignored.
CREATE FUNCTION aforesaid.messages_with_keys(p_owner text, p_id uuid, p_keys text[]) RETURNS SETOF aforesaid.messages
LANGUAGE plpgsql STABLE SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY
        SELECT held.* FROM unnest(p_keys) AS wanted (key)
        CROSS JOIN LATERAL (
            SELECT m.* FROM aforesaid.messages AS m
            WHERE
                m.owner = p_owner AND m.conversation_id = p_id
                AND m.message_key BETWEEN wanted.key AND wanted.key
            ORDER BY m.message_key
            LIMIT 1
        ) AS held;
END
$$;

-- Return whether one of these ids is taken, or a known id is no longer taken or belongs to another message.
CREATE FUNCTION aforesaid.known_ids_differ(
    p_owner text, p_id uuid, p_keys text[], p_known_keys text[], p_known_sequences bigint[]
) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM aforesaid.messages_with_keys(p_owner, p_id, p_keys))
        OR coalesce(cardinality(p_known_keys), 0) <> (
            SELECT count(*)
            FROM unnest(p_known_keys, p_known_sequences) AS known (key, sequence)
            JOIN aforesaid.messages_with_keys(p_owner, p_id, p_known_keys) AS m
                ON m.message_key = known.key AND m.sequence = known.sequence
        );
END
$$;

-- Return the messages with these ids for an owner (full name, not key). One empty row means none, no row a missing
-- conversation.
CREATE FUNCTION aforesaid.known_messages(
    p_name text, p_owner text, p_id uuid, p_now timestamptz, p_keys text[]
) RETURNS TABLE (
    at timestamptz, sequence bigint, revision bigint, stored_at timestamptz, body text, message_key text
)
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT aforesaid.has_conversation(p_name, p_owner, p_id, p_now) THEN
        RETURN;
    END IF;
    RETURN QUERY
        SELECT m.at, m.sequence, m.revision, m.stored_at, m.body, m.message_key
        FROM aforesaid.messages_with_keys(p_owner, p_id, p_keys) AS m;
    IF NOT FOUND THEN
        RETURN NEXT;
    END IF;
END
$$;

-- Return the last messages, or the last before a position, newest first, in one statement. Empty and missing as in
-- `known_messages`.
CREATE FUNCTION aforesaid.tail(
    p_name text, p_owner text, p_id uuid, p_now timestamptz, p_limit bigint,
    p_before_at timestamptz, p_before_sequence bigint
) RETURNS TABLE (at timestamptz, sequence bigint, revision bigint, stored_at timestamptz, body text)
LANGUAGE plpgsql SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    IF NOT aforesaid.has_conversation(p_name, p_owner, p_id, p_now) THEN
        RETURN;
    END IF;
    -- Two statements, so that each has a plan that walks the index from its start.
    IF p_before_at IS NULL THEN
        RETURN QUERY
            SELECT m.at, m.sequence, m.revision, m.stored_at, m.body
            FROM aforesaid.messages AS m
            WHERE m.owner = p_owner AND m.conversation_id = p_id
            ORDER BY m.at DESC, m.sequence DESC
            LIMIT p_limit;
    ELSE
        RETURN QUERY
            SELECT m.at, m.sequence, m.revision, m.stored_at, m.body
            FROM aforesaid.messages AS m
            WHERE
                m.owner = p_owner AND m.conversation_id = p_id
                AND (m.at, m.sequence) < (p_before_at, p_before_sequence)
            ORDER BY m.at DESC, m.sequence DESC
            LIMIT p_limit;
    END IF;
    IF NOT FOUND THEN
        RETURN NEXT;
    END IF;
END
$$;

-- Return messages from the oldest on; owner, empty and missing as in `tail`.
CREATE FUNCTION aforesaid.page(
    p_name text, p_owner text, p_id uuid, p_now timestamptz, p_limit bigint, p_offset bigint
) RETURNS TABLE (at timestamptz, sequence bigint, revision bigint, stored_at timestamptz, body text)
LANGUAGE plpgsql SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    IF NOT aforesaid.has_conversation(p_name, p_owner, p_id, p_now) THEN
        RETURN;
    END IF;
    RETURN QUERY
        SELECT m.at, m.sequence, m.revision, m.stored_at, m.body
        FROM aforesaid.messages AS m
        WHERE m.owner = p_owner AND m.conversation_id = p_id
        ORDER BY m.at, m.sequence
        LIMIT p_limit OFFSET p_offset;
    IF NOT FOUND THEN
        RETURN NEXT;
    END IF;
END
$$;

-- Return what a context needs, in one statement: the record with the version of the conversation (part 0), the last
-- messages, newest first (1), the first messages unless the last ones are the whole log (2), and the owner's documents
-- of a kind (3). A conversation with the given version is unchanged: then the record and the messages are left out. No
-- row means a missing conversation. STABLE, so that all of it is read from one snapshot.
--
-- Generic plans: otherwise the server plans every call anew, to name one partition.
CREATE FUNCTION aforesaid.snapshot(
    p_name text, p_owner text, p_id uuid, p_now timestamptz, p_version text, p_front bigint, p_tail bigint,
    p_kind text, p_after text, p_documents bigint
) RETURNS TABLE (
    part integer, at timestamptz, sequence bigint, revision bigint, stored_at timestamptz, body text, data bytea,
    conversation aforesaid.conversations
)
LANGUAGE plpgsql STABLE SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    found_messages bigint;
BEGIN
    PERFORM aforesaid.set_owner(p_name);
    part := 0;
    SELECT concat_ws(' ', c.xmin, c.revision, c.updated_at) INTO body
    FROM aforesaid.conversations AS c
    WHERE c.owner = p_owner AND c.id = p_id AND (c.expires_at IS NULL OR c.expires_at > p_now);
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF body = p_version THEN
        RETURN NEXT;
    ELSE
        SELECT c.* INTO conversation FROM aforesaid.conversations AS c WHERE c.owner = p_owner AND c.id = p_id;
        RETURN NEXT;
        RETURN QUERY
            SELECT 1, m.at, m.sequence, m.revision, m.stored_at, m.body, NULL::bytea, NULL::aforesaid.conversations
            FROM aforesaid.messages AS m
            WHERE m.owner = p_owner AND m.conversation_id = p_id
            ORDER BY m.at DESC, m.sequence DESC
            LIMIT p_tail;
        GET DIAGNOSTICS found_messages = ROW_COUNT;
        IF found_messages = p_tail AND p_front > 0 THEN
            RETURN QUERY
                SELECT 2, m.at, m.sequence, m.revision, m.stored_at, m.body, NULL::bytea, NULL::aforesaid.conversations
                FROM aforesaid.messages AS m
                WHERE m.owner = p_owner AND m.conversation_id = p_id
                ORDER BY m.at, m.sequence
                LIMIT p_front;
        END IF;
    END IF;
    IF p_documents > 0 THEN
        RETURN QUERY
            SELECT
                3, d.updated_at, d.version, NULL::bigint, NULL::timestamptz, d.key::text, d.data,
                NULL::aforesaid.conversations
            FROM aforesaid.documents AS d
            WHERE d.owner = p_owner AND d.conversation_id IS NULL AND d.kind = p_kind AND d.key > p_after
            ORDER BY d.key
            LIMIT p_documents;
    END IF;
END
$$;

-- Search ---------------------------------------------------------------------------------------

-- Return the totals of an owner's index (messages and terms), the frequency of each term, the expired conversations,
-- and whether unindexed messages exist. Expired conversations do not count.
CREATE FUNCTION aforesaid.term_frequencies(
    p_name text, p_owner text, p_now timestamptz, p_terms text[],
    OUT messages bigint, OUT terms bigint, OUT frequencies bigint[], OUT expired uuid[], OUT waiting boolean
)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    part text := aforesaid.partition_of(p_owner);
    term text;
    found bigint;
BEGIN
    PERFORM aforesaid.set_owner(p_name);
    SELECT
        coalesce(sum(c.indexed_count) FILTER (WHERE c.expires_at IS NULL OR c.expires_at > p_now), 0),
        coalesce(sum(c.term_count) FILTER (WHERE c.expires_at IS NULL OR c.expires_at > p_now), 0),
        coalesce(array_agg(c.id) FILTER (WHERE c.expires_at <= p_now), '{}')
    INTO messages, terms, expired
    FROM aforesaid.conversations AS c
    WHERE c.owner = p_owner;
    waiting := EXISTS (SELECT FROM aforesaid.messages AS m WHERE m.owner = p_owner AND m.term_count IS NULL);
    frequencies := '{}';
    FOREACH term IN ARRAY p_terms LOOP
        PERFORM aforesaid.set_search_terms(ARRAY[term]);
        EXECUTE format(
            'SELECT count(*) FROM aforesaid.%I AS m WHERE m.owner = $1 AND m.conversation_id <> ALL ($2)', part)
            || aforesaid.search_condition(part)
        INTO found USING p_owner, expired;
        frequencies := frequencies || found;
    END LOOP;
END
$$;

-- Return the messages with any of the terms in `p_any`, best first by BM25, with at most four occurrences counted.
-- `p_weights` are the weights of the terms, `p_average` is the average number of terms per message, `p_saturation` and
-- `p_length` are BM25's k1 and b. `counts` are exact.
CREATE FUNCTION aforesaid.matching_messages(
    p_name text, p_owner text, p_any text[], p_terms text[], p_weights double precision[],
    p_average double precision, p_saturation double precision, p_length double precision, p_expired uuid[],
    p_limit bigint
) RETURNS TABLE (
    conversation_id uuid, at timestamptz, sequence bigint, role text, term_count integer, score double precision,
    counts integer[]
)
LANGUAGE plpgsql AS $$
DECLARE
    part text := aforesaid.partition_of(p_owner);
    prefix text := aforesaid.term_prefix(p_owner);
    marked text[] := ARRAY(
        SELECT prefix || asked.term FROM unnest(p_terms) WITH ORDINALITY AS asked (term, place) ORDER BY asked.place);
    sought text[] := ARRAY(
        SELECT aforesaid.term_query(prefix, asked.term)
        FROM unnest(p_terms) WITH ORDINALITY AS asked (term, place) ORDER BY asked.place);
BEGIN
    PERFORM aforesaid.set_owner(p_name);
    PERFORM aforesaid.set_search_terms(p_any);
    -- `ts_rank` of one term is the weight for its frequency, divided by 1.64493406685.
    RETURN QUERY EXECUTE format($search$
        SELECT best.conversation_id, best.at, best.sequence, best.role, best.term_count, best.score, (
            SELECT array_agg(coalesce(held.positions[1], 0)::integer ORDER BY asked.place)
            FROM unnest($2) WITH ORDINALITY AS asked (term, place)
            LEFT JOIN unnest(best.terms) AS held ON held.lexeme = asked.term
        )
        FROM (
            SELECT m.conversation_id, m.at, m.sequence, m.role, m.term_count, m.terms, (
                SELECT sum(asked.weight * often.n * ($8 + 1) / (often.n + $8 * (1 - $9 + $9 * m.term_count / $5)))
                FROM unnest($3::tsquery[], $4) AS asked (query, weight)
                CROSS JOIN LATERAL (
                    SELECT 6.5797362674 * ts_rank('{0.25, 0.5, 0.75, 1}', m.terms, asked.query) AS n
                ) AS often
            ) AS score
            FROM aforesaid.%I AS m
            WHERE m.owner = $1 AND m.conversation_id <> ALL ($6) %s
            ORDER BY score DESC, m.at DESC, m.sequence DESC, m.conversation_id
            LIMIT $7
        ) AS best
        ORDER BY best.score DESC, best.at DESC, best.sequence DESC, best.conversation_id
    $search$, part, aforesaid.search_condition(part))
    USING p_owner, marked, sought, p_weights, p_average, p_expired, p_limit, p_saturation, p_length;
END
$$;

-- Operators ------------------------------------------------------------------------------------

-- Return the owners with a contact, a conversation or a document of another kind than these, after a given owner, by
-- key.
CREATE FUNCTION aforesaid.owners_after(p_last text, p_limit bigint, p_ignored_kinds text[])
RETURNS TABLE (owner text, owner_name text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM set_config('aforesaid.operator', 'on', true);
    RETURN QUERY
        SELECT having_something.owner, max(having_something.owner_name)
        FROM (
            SELECT c.owner, c.owner_name FROM aforesaid.conversations AS c WHERE c.owner > p_last
            UNION ALL
            SELECT d.owner, d.owner_name
            FROM aforesaid.documents AS d
            WHERE d.owner > p_last AND d.conversation_id IS NULL AND d.kind <> ALL (p_ignored_kinds)
            UNION ALL
            SELECT p.owner, p.owner_name FROM aforesaid.contacts AS p WHERE p.owner > p_last AND NOT p.brought
        ) AS having_something
        GROUP BY having_something.owner
        ORDER BY having_something.owner
        LIMIT p_limit;
    PERFORM set_config('aforesaid.operator', '', true);
END
$$;

-- Delete some expired conversations of all owners; return their number.
CREATE FUNCTION aforesaid.purge(p_now timestamptz, p_limit bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    gone bigint;
BEGIN
    PERFORM set_config('aforesaid.operator', 'on', true);
    WITH removed AS (
        DELETE FROM aforesaid.conversations AS c
        WHERE (c.owner, c.id) IN (
            SELECT old.owner, old.id
            FROM aforesaid.conversations AS old
            WHERE
                old.expires_at <= p_now
                AND NOT EXISTS (
                    SELECT FROM aforesaid.conversations AS branch
                    WHERE
                        branch.owner = old.owner AND branch.root = coalesce(old.root, old.id)
                        AND (branch.expires_at IS NULL OR branch.expires_at > p_now)
                )
            LIMIT p_limit
            FOR UPDATE SKIP LOCKED
        )
        RETURNING c.owner, c.id
    )
    SELECT count(aforesaid.notify(removed.owner, removed.id)) INTO gone FROM removed;
    PERFORM set_config('aforesaid.operator', '', true);
    RETURN gone;
END
$$;

REVOKE EXECUTE ON FUNCTION aforesaid.owners_after, aforesaid.purge, aforesaid.admit, aforesaid.enable_row_security,
    aforesaid.enable_search_policy, aforesaid.disable_statistics, aforesaid.notify_watchers FROM PUBLIC;

-- The documented face --------------------------------------------------------------------------

-- Return a body as jsonb. NUL and lone surrogates, which jsonb cannot represent, become U+FFFD; the stored body keeps
-- them. A body that is not JSON is returned as text.
CREATE FUNCTION aforesaid.body_as_json(p_body text) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
DECLARE
    shown text := p_body;
BEGIN
    IF strpos(p_body, '\u') = 0 THEN
        RETURN p_body::jsonb;
    END IF;
    shown := regexp_replace(shown, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g');
    shown := regexp_replace(
        shown, '(?<!\\)((?:\\\\)*)\\u[dD][89abAB][[:xdigit:]]{2}(?!\\u[dD][c-fC-F])', '\1\\ufffd', 'g');
    shown := regexp_replace(
        shown, '(?<!\\u[dD][89abAB][[:xdigit:]]{2})(?<!\\)((?:\\\\)*)\\u[dD][c-fC-F][[:xdigit:]]{2}', '\1\\ufffd', 'g');
    BEGIN
        RETURN shown::jsonb;
    EXCEPTION WHEN data_exception THEN
        RETURN jsonb_build_object('content', p_body);
    END;
END
$$;

-- Return a time in ISO 8601, in UTC.
CREATE FUNCTION aforesaid.iso(p_at timestamptz) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN to_char(p_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"');

-- Return a message in its documented form, as `Message.to_dict` does.
CREATE FUNCTION aforesaid.message_as_json(p_role text, p_at timestamptz, p_body text) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
DECLARE
    body jsonb := aforesaid.body_as_json(p_body);
    ours jsonb := jsonb_build_object(
        'role', p_role,
        'content', body -> 'content',
        'timestamp', coalesce(body ->> 'timestamp', aforesaid.iso(p_at)),
        'content_type', coalesce(body ->> 'content_type', 'text'));
BEGIN
    IF coalesce(body ->> 'dialect', 'plain') = 'plain' THEN
        RETURN coalesce(body -> 'extra', '{}') || (body - ARRAY['extra', 'tokens']) || ours;
    END IF;
    -- The fields of another dialect are separate, because their names may equal ours.
    RETURN (body - 'tokens') || ours
        || CASE WHEN body ? 'content' THEN '{}' ELSE '{"without_content": true}' END::jsonb;
END
$$;

-- Convert documents to the rows for `turn`. Reject documents that the store could not read back.
CREATE FUNCTION aforesaid.parse_messages(p_messages jsonb)
RETURNS TABLE (place bigint, document jsonb, role text, at timestamptz, key text, body text)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    fields CONSTANT text[] := ARRAY[
        'role', 'content', 'timestamp', 'content_type', 'agent_name', 'message_id', 'tags', 'speech', 'dialect',
        'author'];
    given jsonb;
    extra jsonb;
BEGIN
    IF jsonb_typeof(p_messages) IS DISTINCT FROM 'array' THEN
        RAISE check_violation USING MESSAGE = 'messages must be an array';
    END IF;
    FOR document, place IN SELECT * FROM jsonb_array_elements(p_messages) WITH ORDINALITY LOOP
        IF jsonb_typeof(document) <> 'object' THEN
            RAISE check_violation USING MESSAGE = format('message %s must be an object', place);
        END IF;
        SELECT coalesce(jsonb_object_agg(field, value), '{}') INTO given
        FROM jsonb_each(document) AS had (field, value)
        WHERE field = ANY (fields) AND (field = 'content' OR jsonb_typeof(value) <> 'null');
        extra := document - fields;
        -- Other programs have an author of another form, which stays an additional field.
        IF given ? 'author' AND jsonb_typeof(given -> 'author') <> 'string' THEN
            extra := extra || jsonb_build_object('author', given -> 'author');
            given := given - 'author';
        END IF;
        IF coalesce(given ->> 'dialect', 'plain') <> 'plain' THEN
            IF extra -> 'without_content' = 'true' THEN
                given := given - 'content';
            END IF;
            extra := (extra - 'without_content') - 'extra'
                || CASE jsonb_typeof(extra -> 'extra')
                    WHEN 'object' THEN extra -> 'extra'
                    ELSE jsonb_strip_nulls(jsonb_build_object('extra', extra -> 'extra'))
                END;
        END IF;
        PERFORM aforesaid.check_message(place, given, extra);
        role := given ->> 'role';
        key := aforesaid.key_of(given ->> 'message_id');
        at := aforesaid.parse_timestamp(place, given ->> 'timestamp');
        IF at IS NOT NULL THEN
            given := given || jsonb_build_object('timestamp', aforesaid.portable_timestamp(given ->> 'timestamp', at));
        END IF;
        IF extra <> '{}' THEN
            given := given || jsonb_build_object('extra', extra);
        END IF;
        body := given::text;
        RETURN NEXT;
    END LOOP;
END
$$;

-- Return whether this is valid metadata of speech, as `Speech`: a confidence from 0 to 1, a language, the spoken text,
-- and the number of its heard characters.
CREATE FUNCTION aforesaid.is_speech(p_speech jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE jsonb_typeof(p_speech)
    WHEN 'object' THEN p_speech - ARRAY['confidence', 'language', 'spoken', 'heard'] = '{}'
        AND coalesce(jsonb_typeof(p_speech -> 'confidence'), 'null') IN ('null', 'number')
        AND coalesce(jsonb_typeof(p_speech -> 'language'), 'null') IN ('null', 'string')
        AND coalesce(jsonb_typeof(p_speech -> 'spoken'), 'null') IN ('null', 'string')
        AND coalesce(jsonb_typeof(p_speech -> 'heard'), 'null') IN ('null', 'number')
        AND NOT jsonb_path_exists(p_speech, '$.confidence ? (@ < 0 || @ > 1)')
        AND NOT jsonb_path_exists(
            p_speech,
            '$.heard ? (@ < 0 || @ > $most || @.floor() != @)',
            jsonb_build_object('most', coalesce(length(p_speech ->> 'spoken'), -1)))
    ELSE false
END;

CREATE FUNCTION aforesaid.check_message(p_place bigint, p_given jsonb, p_extra jsonb) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    field text;
BEGIN
    IF coalesce(p_given ->> 'role', '') NOT IN ('user', 'assistant', 'system', 'tool') THEN
        RAISE check_violation USING MESSAGE = format(
            'message %s: role must be one of user, assistant, system, tool; got %s', p_place, p_given -> 'role');
    END IF;
    IF coalesce(p_given ->> 'content_type', 'text') NOT IN ('text', 'audio') THEN
        RAISE check_violation USING MESSAGE = format(
            'message %s: content_type must be one of text, audio; got %s', p_place, p_given -> 'content_type');
    END IF;
    FOREACH field IN ARRAY ARRAY['role', 'timestamp', 'content_type', 'agent_name', 'message_id', 'dialect'] LOOP
        IF jsonb_typeof(p_given -> field) <> 'string' THEN
            RAISE check_violation USING MESSAGE = format('message %s: %s must be text', p_place, field);
        END IF;
    END LOOP;
    IF length(p_given ->> 'message_id') NOT BETWEEN 1 AND 1024 THEN
        RAISE check_violation USING MESSAGE = format(
            'message %s: message_id must have 1 to 1024 characters', p_place);
    END IF;
    IF jsonb_typeof(p_given -> 'tags') <> 'array' OR jsonb_path_exists(p_given, '$.tags[*] ? (@.type() != "string")')
    THEN
        RAISE check_violation USING MESSAGE = format('message %s: tags must be an array of text', p_place);
    END IF;
    IF p_given ? 'speech' AND NOT aforesaid.is_speech(p_given -> 'speech') THEN
        RAISE check_violation USING MESSAGE = format(
            'message %s: speech must have the fields confidence, language, spoken, heard; got %s',
            p_place, p_given -> 'speech');
    END IF;
    IF jsonb_path_exists(p_given || p_extra, '$.**{500 to last}') THEN
        RAISE check_violation USING MESSAGE = format('message %s is nested too deep to be stored', p_place);
    END IF;
    IF NOT p_given ? 'content' AND p_extra = '{}' THEN
        RAISE check_violation USING MESSAGE = format('message %s needs content', p_place);
    END IF;
END
$$;

-- Parse the timestamp of a message. A time zone is required.
CREATE FUNCTION aforesaid.parse_timestamp(p_place bigint, p_text text) RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF p_text !~ '^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?\s*([Zz]|[+-]\d{2}(:?\d{2})?)$' THEN
        RAISE check_violation USING MESSAGE = format(
            'message %s: timestamp must be ISO 8601 with a time zone; got %s', p_place, p_text);
    END IF;
    IF p_text::timestamptz NOT BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00' THEN
        RAISE check_violation USING MESSAGE = format(
            'message %s: timestamp must lie in the years 1 to 9999 of UTC; got %s', p_place, p_text);
    END IF;
    RETURN p_text::timestamptz;
END
$$;

-- Return a timestamp unchanged if every reader accepts it, or else the same time in UTC.
CREATE FUNCTION aforesaid.portable_timestamp(p_text text, p_at timestamptz) RETURNS text
LANGUAGE sql STABLE
RETURN CASE
    WHEN p_text ~ '^\d{4}-\d{2}-\d{2}T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]\d{2}:\d{2})$' THEN p_text
    ELSE aforesaid.iso(p_at)
END;

CREATE VIEW api.contacts WITH (security_invoker = true) AS
SELECT c.id, c.name, c.nicknames, c.company, c.email, c.phone, c.notes, c.created_at, c.updated_at
FROM aforesaid.contacts AS c
WHERE c.owner = (SELECT aforesaid.current_owner()) AND NOT c.brought;

CREATE VIEW api.conversations WITH (security_invoker = true) AS
SELECT
    c.id, c.client_id, c.client_name, c.subject, c.channel, c.status, c.priority, c.assigned_to,
    (
        SELECT coalesce(jsonb_agg(aforesaid.message_as_json(m.role, m.at, m.body) ORDER BY m.at, m.sequence), '[]')
        FROM aforesaid.messages AS m
        WHERE m.owner = c.owner AND m.conversation_id = c.id
    ) AS messages,
    c.last_message_at, c.last_message_from, least(c.unread_count, 2147483647)::integer AS unread_count, c.tags, c.notes,
    c.created_at, c.updated_at, c.name, c.revision, c.message_count
FROM aforesaid.conversations AS c
WHERE c.owner = (SELECT aforesaid.current_owner()) AND (c.expires_at IS NULL OR c.expires_at > now());

COMMENT ON VIEW api.conversations IS
    'The owner''s conversations, each with its messages. Insert, update and delete as in a table. An update'
    ' of messages that begins with those there are appends the rest; any other takes their place.'
    ' last_message_at, last_message_from, revision and message_count follow from the messages and the changes;'
    ' what is written to them is not kept.';

ALTER VIEW api.conversations ALTER COLUMN id SET DEFAULT gen_random_uuid();
ALTER VIEW api.conversations ALTER COLUMN channel SET DEFAULT 'voice';
ALTER VIEW api.conversations ALTER COLUMN status SET DEFAULT 'open';
ALTER VIEW api.conversations ALTER COLUMN priority SET DEFAULT 'normal';
ALTER VIEW api.conversations ALTER COLUMN messages SET DEFAULT '[]';
ALTER VIEW api.conversations ALTER COLUMN tags SET DEFAULT '{}';
ALTER VIEW api.conversations ALTER COLUMN unread_count SET DEFAULT 0;
ALTER VIEW api.conversations ALTER COLUMN created_at SET DEFAULT now();
ALTER VIEW api.conversations ALTER COLUMN updated_at SET DEFAULT now();

-- Return the owner for writes of plain SQL; raise an error without one.
CREATE FUNCTION aforesaid.require_owner() RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF aforesaid.current_owner() IS NULL THEN
        RAISE insufficient_privilege USING
            MESSAGE = 'this session has no owner',
            HINT = 'Set aforesaid.owner, or come with a token that has a sub.';
    END IF;
    RETURN aforesaid.current_owner();
END
$$;

-- Return the owner's full name if its key is a digest.
CREATE FUNCTION aforesaid.full_owner_name() RETURNS text
LANGUAGE sql STABLE
RETURN nullif(coalesce(
    nullif(nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'sub', ''),
    nullif(current_setting('request.jwt.claim.sub', true), ''),
    nullif(current_setting('aforesaid.owner', true), '')
), aforesaid.current_owner());

-- Append documents as one turn, or replace all messages.
CREATE FUNCTION aforesaid.store_messages(p_owner text, p_id uuid, p_messages jsonb, p_rewrite boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    roles text[];
    times timestamptz[];
    keys text[];
    bodies text[];
BEGIN
    -- Lock until the end of the transaction, so that the known ids cannot change.
    PERFORM FROM aforesaid.conversations AS c WHERE c.owner = p_owner AND c.id = p_id FOR NO KEY UPDATE;
    PERFORM aforesaid.check_ids(p_owner, p_id, p_messages, p_rewrite);
    WITH stored AS (
        SELECT m.message_key AS key, m.body, aforesaid.message_as_json(m.role, m.at, m.body) AS document
        FROM aforesaid.messages AS m
        WHERE m.owner = p_owner AND m.conversation_id = p_id
            AND (p_rewrite OR m.message_key IN (SELECT aforesaid.key_of(d ->> 'message_id')
                                               FROM jsonb_array_elements(p_messages) AS d))
    ),
    once AS (
        SELECT DISTINCT ON (incoming.key, CASE WHEN incoming.key IS NULL THEN incoming.place END) incoming.*
        FROM aforesaid.parse_messages(p_messages) AS incoming
        WHERE p_rewrite OR incoming.key IS NULL OR incoming.key NOT IN (SELECT key FROM stored WHERE key IS NOT NULL)
        ORDER BY incoming.key, CASE WHEN incoming.key IS NULL THEN incoming.place END, incoming.place
    ),
    -- An unchanged message keeps its body, which may contain more than its document shows.
    kept AS (SELECT DISTINCT ON (document) document, body FROM stored WHERE p_rewrite)
    SELECT
        coalesce(array_agg(once.role ORDER BY place), '{}'), coalesce(array_agg(once.at ORDER BY place), '{}'),
        coalesce(array_agg(once.key ORDER BY place), '{}'),
        coalesce(array_agg(coalesce(kept.body, once.body) ORDER BY place), '{}')
    INTO roles, times, keys, bodies
    FROM once LEFT JOIN kept ON kept.document = once.document;
    PERFORM aforesaid.turn(NULL, p_owner, p_id, now(), NULL, p_rewrite, NULL, NULL, roles, times, keys, bodies);
END
$$;

-- A message id identifies one message: other content with the same id is an error.
CREATE FUNCTION aforesaid.check_ids(p_owner text, p_id uuid, p_messages jsonb, p_rewrite boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    clash text;
BEGIN
    IF NOT jsonb_path_exists(p_messages, '$[*].message_id') THEN
        RETURN;
    END IF;
    WITH incoming AS (SELECT * FROM aforesaid.parse_messages(p_messages) WHERE key IS NOT NULL),
    earlier AS (
        SELECT incoming.key, incoming.place, incoming.document FROM incoming
        UNION ALL
        SELECT m.message_key, 0, aforesaid.message_as_json(m.role, m.at, m.body)
        FROM aforesaid.messages AS m
        WHERE NOT p_rewrite AND m.owner = p_owner AND m.conversation_id = p_id
            AND m.message_key IN (SELECT key FROM incoming)
    )
    SELECT incoming.key INTO clash
    FROM incoming JOIN earlier ON earlier.key = incoming.key AND earlier.place < incoming.place
    WHERE (earlier.document -> 'role', earlier.document -> 'content')
        IS DISTINCT FROM (incoming.document -> 'role', incoming.document -> 'content')
    LIMIT 1;
    IF FOUND THEN
        RAISE unique_violation USING MESSAGE = format(
            'message id %s belongs to a message with other content, and nothing was stored', clash);
    END IF;
END
$$;

CREATE FUNCTION aforesaid.api_insert() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    me text := aforesaid.require_owner();
BEGIN
    DELETE FROM aforesaid.conversations AS c
    WHERE c.owner = me AND c.id = NEW.id AND c.expires_at <= now();
    INSERT INTO aforesaid.conversations (
        owner, id, owner_name, channel, status, priority, client_id, client_name, subject, assigned_to, tags,
        notes, unread_count, message_count, revision, ttl, expires_at, created_at, updated_at, name
    ) VALUES (
        me, coalesce(NEW.id, gen_random_uuid()), aforesaid.full_owner_name(), NEW.channel, NEW.status, NEW.priority,
        NEW.client_id, NEW.client_name, NEW.subject, NEW.assigned_to, coalesce(NEW.tags, '{}'), NEW.notes, 0, 0, 0,
        aforesaid.default_ttl(), aforesaid.expiry(aforesaid.default_ttl(), now()),
        coalesce(NEW.created_at, now()), coalesce(NEW.updated_at, now()), NEW.name
    ) RETURNING id INTO NEW.id;
    PERFORM aforesaid.notify(me, NEW.id);
    IF NEW.messages <> '[]' THEN
        PERFORM aforesaid.store_messages(me, NEW.id, NEW.messages, false);
    END IF;
    IF NEW.unread_count <> 0 THEN
        UPDATE aforesaid.conversations AS c SET unread_count = NEW.unread_count
        WHERE c.owner = me AND c.id = NEW.id;
    END IF;
    SELECT shown.* INTO NEW FROM api.conversations AS shown WHERE shown.id = NEW.id;
    RETURN NEW;
END
$$;

CREATE TRIGGER insert_conversation INSTEAD OF INSERT ON api.conversations
    FOR EACH ROW EXECUTE FUNCTION aforesaid.api_insert();

-- Write only the changed fields, so that two statements with different fields both take effect.
CREATE FUNCTION aforesaid.api_update() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    me text := aforesaid.require_owner();
    moved bigint;
BEGIN
    IF NEW.id IS DISTINCT FROM OLD.id THEN
        RAISE check_violation USING MESSAGE = 'the id of a conversation does not change';
    END IF;
    IF NEW.name IS DISTINCT FROM OLD.name THEN
        RAISE check_violation USING MESSAGE = 'the name of a conversation does not change';
    END IF;
    IF NEW.messages IS DISTINCT FROM OLD.messages
        AND NOT aforesaid.api_messages(me, OLD.id, OLD.revision, OLD.messages, NEW.messages) THEN
        RETURN NULL;
    END IF;
    UPDATE aforesaid.conversations AS c
    SET
        channel = CASE WHEN NEW.channel IS DISTINCT FROM OLD.channel THEN NEW.channel ELSE c.channel END,
        status = CASE WHEN NEW.status IS DISTINCT FROM OLD.status THEN NEW.status ELSE c.status END,
        priority = CASE WHEN NEW.priority IS DISTINCT FROM OLD.priority THEN NEW.priority ELSE c.priority END,
        client_id = CASE WHEN NEW.client_id IS DISTINCT FROM OLD.client_id THEN NEW.client_id ELSE c.client_id END,
        client_name =
            CASE WHEN NEW.client_name IS DISTINCT FROM OLD.client_name THEN NEW.client_name ELSE c.client_name END,
        subject = CASE WHEN NEW.subject IS DISTINCT FROM OLD.subject THEN NEW.subject ELSE c.subject END,
        assigned_to =
            CASE WHEN NEW.assigned_to IS DISTINCT FROM OLD.assigned_to THEN NEW.assigned_to ELSE c.assigned_to END,
        unread_count =
            CASE WHEN NEW.unread_count IS DISTINCT FROM OLD.unread_count THEN NEW.unread_count ELSE c.unread_count END,
        tags = CASE WHEN NEW.tags IS DISTINCT FROM OLD.tags THEN NEW.tags ELSE c.tags END,
        notes = CASE WHEN NEW.notes IS DISTINCT FROM OLD.notes THEN NEW.notes ELSE c.notes END,
        created_at = CASE WHEN NEW.created_at IS DISTINCT FROM OLD.created_at THEN NEW.created_at ELSE c.created_at END,
        updated_at = now(),
        revision = c.revision + 1
    WHERE c.owner = me AND c.id = OLD.id
    RETURNING c.revision INTO moved;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    PERFORM aforesaid.notify(me, OLD.id);
    SELECT shown.* INTO NEW FROM api.conversations AS shown WHERE shown.id = OLD.id;
    RETURN NEW;
END
$$;

CREATE TRIGGER update_conversation INSTEAD OF UPDATE ON api.conversations
    FOR EACH ROW EXECUTE FUNCTION aforesaid.api_update();

-- Additional messages at the end are a turn. Any other change replaces the history; return false if it has changed since
-- the statement read it.
CREATE FUNCTION aforesaid.api_messages(p_owner text, p_id uuid, p_revision bigint, p_old jsonb, p_new jsonb)
RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    size integer := jsonb_array_length(p_old);
    head jsonb;
    rest jsonb;
    actual bigint;
BEGIN
    IF jsonb_typeof(p_new) IS DISTINCT FROM 'array' THEN
        RAISE check_violation USING MESSAGE = 'messages must be an array';
    END IF;
    SELECT
        coalesce(jsonb_agg(document ORDER BY place) FILTER (WHERE place <= size), '[]'),
        coalesce(jsonb_agg(document ORDER BY place) FILTER (WHERE place > size), '[]')
    INTO head, rest
    FROM jsonb_array_elements(p_new) WITH ORDINALITY AS incoming (document, place);
    IF head = p_old THEN
        PERFORM aforesaid.store_messages(p_owner, p_id, rest, false);
        RETURN true;
    END IF;
    -- The statement read the row before it waited for this lock: a message that came in between must not be replaced.
    SELECT c.revision INTO actual FROM aforesaid.conversations AS c
    WHERE c.owner = p_owner AND c.id = p_id FOR NO KEY UPDATE;
    IF actual <> p_revision THEN
        RETURN false;
    END IF;
    PERFORM aforesaid.store_messages(p_owner, p_id, p_new, true);
    RETURN true;
END
$$;

CREATE FUNCTION aforesaid.api_delete() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    me text := aforesaid.require_owner();
BEGIN
    DELETE FROM aforesaid.conversations AS c WHERE c.owner = me AND c.id = OLD.id;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    PERFORM aforesaid.notify(me, OLD.id);
    RETURN OLD;
END
$$;

CREATE TRIGGER delete_conversation INSTEAD OF DELETE ON api.conversations
    FOR EACH ROW EXECUTE FUNCTION aforesaid.api_delete();

-- A client of a conversation may have a placeholder contact.
CREATE FUNCTION aforesaid.api_insert_contact() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    me text := aforesaid.require_owner();
    given uuid := coalesce(NEW.id, gen_random_uuid());
BEGIN
    INSERT INTO aforesaid.contacts AS p (
        owner, owner_name, id, name, nicknames, company, email, phone, notes, created_at, updated_at
    ) VALUES (
        me, aforesaid.full_owner_name(), given, NEW.name, coalesce(NEW.nicknames, '{}'),
        NEW.company, NEW.email, NEW.phone, NEW.notes, coalesce(NEW.created_at, now()), coalesce(NEW.updated_at, now())
    )
    ON CONFLICT (owner, id) DO UPDATE
        SET
            name = excluded.name, nicknames = excluded.nicknames, company = excluded.company,
            email = excluded.email, phone = excluded.phone, notes = excluded.notes, data = NULL, brought = false,
            version = 1, owner_name = excluded.owner_name, created_at = excluded.created_at,
            updated_at = excluded.updated_at
        WHERE p.brought;
    IF NOT FOUND THEN
        RAISE unique_violation USING MESSAGE = format('there is a contact %s already', given);
    END IF;
    SELECT shown.* INTO NEW FROM api.contacts AS shown WHERE shown.id = given;
    RETURN NEW;
END
$$;

CREATE TRIGGER insert_contact INSTEAD OF INSERT ON api.contacts
    FOR EACH ROW EXECUTE FUNCTION aforesaid.api_insert_contact();

-- The columns are authoritative here: a sealed contact is no longer sealed.
CREATE FUNCTION aforesaid.api_update_contact() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    me text := aforesaid.require_owner();
BEGIN
    IF NEW.id IS DISTINCT FROM OLD.id THEN
        RAISE check_violation USING MESSAGE = 'the id of a contact does not change';
    END IF;
    UPDATE aforesaid.contacts AS p
    SET
        name = CASE WHEN NEW.name IS DISTINCT FROM OLD.name THEN NEW.name ELSE p.name END,
        nicknames = coalesce(
            CASE WHEN NEW.nicknames IS DISTINCT FROM OLD.nicknames THEN NEW.nicknames ELSE p.nicknames END, '{}'),
        company = CASE WHEN NEW.company IS DISTINCT FROM OLD.company THEN NEW.company ELSE p.company END,
        email = CASE WHEN NEW.email IS DISTINCT FROM OLD.email THEN NEW.email ELSE p.email END,
        phone = CASE WHEN NEW.phone IS DISTINCT FROM OLD.phone THEN NEW.phone ELSE p.phone END,
        notes = CASE WHEN NEW.notes IS DISTINCT FROM OLD.notes THEN NEW.notes ELSE p.notes END,
        created_at = CASE WHEN NEW.created_at IS DISTINCT FROM OLD.created_at THEN NEW.created_at ELSE p.created_at END,
        data = NULL, version = p.version + 1, updated_at = now()
    WHERE p.owner = me AND p.id = OLD.id AND NOT p.brought;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT shown.* INTO NEW FROM api.contacts AS shown WHERE shown.id = OLD.id;
    RETURN NEW;
END
$$;

CREATE TRIGGER update_contact INSTEAD OF UPDATE ON api.contacts
    FOR EACH ROW EXECUTE FUNCTION aforesaid.api_update_contact();

-- Conversations stay when their contact is deleted. The foreign key would do the same, but without notifications.
CREATE FUNCTION aforesaid.api_delete_contact() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    me text := aforesaid.require_owner();
    let_go record;
BEGIN
    FOR let_go IN
        UPDATE aforesaid.conversations AS c
        SET client_id = NULL, revision = c.revision + 1, updated_at = now()
        WHERE c.owner = me AND c.client_id = OLD.id
        RETURNING c.id, c.revision
    LOOP
        PERFORM aforesaid.notify(me, let_go.id);
    END LOOP;
    DELETE FROM aforesaid.contacts AS c WHERE c.owner = me AND c.id = OLD.id;
    RETURN OLD;
END
$$;

CREATE TRIGGER delete_contact INSTEAD OF DELETE ON api.contacts
    FOR EACH ROW EXECUTE FUNCTION aforesaid.api_delete_contact();

-- Sessions ---------------------------------------------------------------------------------------

CREATE VIEW api.conversation_sessions WITH (security_invoker = true) AS
SELECT coalesce(s.session_name, s.session_key) AS session_id, s.conversation_id
FROM aforesaid.sessions AS s
JOIN aforesaid.conversations AS c ON c.owner = s.owner AND c.id = s.conversation_id
WHERE s.owner = (SELECT aforesaid.current_owner()) AND (c.expires_at IS NULL OR c.expires_at > now());

COMMENT ON VIEW api.conversation_sessions IS
    'The conversation that each session of the owner continues. Insert binds a session that has none; update'
    ' binds it to another conversation.';

CREATE FUNCTION aforesaid.api_insert_session() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    me text := aforesaid.require_owner();
    given text := aforesaid.key_of(NEW.session_id);
BEGIN
    DELETE FROM aforesaid.sessions AS s USING aforesaid.conversations AS c
    WHERE s.owner = me AND s.session_key = given
        AND c.owner = me AND c.id = s.conversation_id AND c.expires_at <= now();
    INSERT INTO aforesaid.sessions (owner, session_key, session_name, conversation_id)
    VALUES (me, given, nullif(NEW.session_id, given), NEW.conversation_id);
    RETURN NEW;
END
$$;

CREATE TRIGGER insert_session INSTEAD OF INSERT ON api.conversation_sessions
    FOR EACH ROW EXECUTE FUNCTION aforesaid.api_insert_session();

CREATE FUNCTION aforesaid.api_update_session() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    me text := aforesaid.require_owner();
BEGIN
    IF NEW.session_id IS DISTINCT FROM OLD.session_id THEN
        RAISE check_violation USING MESSAGE = 'the id of a session does not change';
    END IF;
    UPDATE aforesaid.sessions AS s SET conversation_id = NEW.conversation_id
    WHERE s.owner = me AND s.session_key = aforesaid.key_of(OLD.session_id)
        AND s.conversation_id = OLD.conversation_id;
    IF NOT FOUND THEN
        RETURN NULL;  -- bound to another conversation meanwhile
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER update_session INSTEAD OF UPDATE ON api.conversation_sessions
    FOR EACH ROW EXECUTE FUNCTION aforesaid.api_update_session();

CREATE FUNCTION aforesaid.api_delete_session() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    me text := aforesaid.require_owner();
BEGIN
    DELETE FROM aforesaid.sessions AS s WHERE s.owner = me AND s.session_key = aforesaid.key_of(OLD.session_id);
    RETURN OLD;
END
$$;

CREATE TRIGGER delete_session INSTEAD OF DELETE ON api.conversation_sessions
    FOR EACH ROW EXECUTE FUNCTION aforesaid.api_delete_session();
