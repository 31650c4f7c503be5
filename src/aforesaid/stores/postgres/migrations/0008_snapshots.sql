-- Read a context with one statement.

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

ALTER FUNCTION aforesaid.tail SET plan_cache_mode = force_generic_plan;
ALTER FUNCTION aforesaid.page SET plan_cache_mode = force_generic_plan;
ALTER FUNCTION aforesaid.messages_with_keys SET plan_cache_mode = force_generic_plan;
