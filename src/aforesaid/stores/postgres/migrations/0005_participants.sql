-- The people and agents of a conversation; NULL where only the owner uses it.

ALTER TABLE aforesaid.conversations ADD COLUMN participants jsonb;
SELECT aforesaid.disable_statistics('conversations', ARRAY['participants']);

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
CREATE FUNCTION aforesaid.current_participant() RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN coalesce(
    nullif(nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'participant', ''),
    nullif(current_setting('aforesaid.participant', true), '')
);

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
    OR EXISTS (
        SELECT FROM aforesaid.conversations AS c
        WHERE
            c.owner = messages.owner AND c.id = messages.conversation_id
            AND aforesaid.sees(
                c.participants, (SELECT aforesaid.current_participant()), messages.at, messages.sequence
            )
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

-- Convert documents to the rows for `turn`. Reject documents that the store could not read back.
CREATE OR REPLACE FUNCTION aforesaid.parse_messages(p_messages jsonb)
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
