-- api.conversations shows name, revision and the number of messages; api.conversation_sessions shows sessions. An update that replaces
-- messages changes no row if the conversation changed after the statement read it.

CREATE OR REPLACE VIEW api.conversations WITH (security_invoker = true) AS
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

CREATE OR REPLACE FUNCTION aforesaid.api_insert() RETURNS trigger
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

DROP FUNCTION aforesaid.api_messages(text, uuid, jsonb, jsonb);

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

CREATE OR REPLACE FUNCTION aforesaid.api_update() RETURNS trigger
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

CREATE OR REPLACE FUNCTION aforesaid.admit(p_role name, p_owner text DEFAULT NULL, p_service boolean DEFAULT false)
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

-- Roles that were admitted earlier get the new view too.
DO $$
DECLARE
    admitted name;
BEGIN
    FOR admitted IN
        SELECT DISTINCT grantee::name FROM information_schema.role_table_grants
        WHERE table_schema = 'api' AND table_name = 'conversations' AND privilege_type = 'SELECT'
            AND grantee <> current_user
    LOOP
        EXECUTE format(
            'GRANT SELECT, INSERT, UPDATE, DELETE ON api.conversation_sessions, aforesaid.sessions TO %I', admitted);
    END LOOP;
END
$$;
