-- Store the waiting turns of several owners with one statement.

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

-- Return the participant of this session: the claim `participant` of a token checked by a gateway, or else the setting
-- `aforesaid.participant`; NULL for the owner.
CREATE FUNCTION aforesaid.named_participant() RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN coalesce(
    nullif(nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'participant', ''),
    nullif(current_setting('aforesaid.participant', true), '')
);

CREATE OR REPLACE FUNCTION aforesaid.current_participant() RETURNS text
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

DROP POLICY participants ON aforesaid.messages;
CREATE POLICY participants ON aforesaid.messages AS RESTRICTIVE USING (
    (SELECT aforesaid.current_participant()) IS NULL
    OR aforesaid.sees_message(
        (SELECT aforesaid.current_participant()), messages.owner, messages.conversation_id, messages.at, messages.sequence
    )
);

CREATE OR REPLACE FUNCTION aforesaid.enable_row_security(p_table text) RETURNS void
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

DO $$
DECLARE
    guarded name;
BEGIN
    FOR guarded IN
        SELECT c.relname FROM pg_policy AS p JOIN pg_class AS c ON c.oid = p.polrelid
        WHERE c.relnamespace = 'aforesaid'::regnamespace AND p.polname = 'own_rows'
    LOOP
        EXECUTE format(
            'ALTER POLICY own_rows ON aforesaid.%I'
            ' USING (array_position((SELECT aforesaid.current_owners()), owner) IS NOT NULL)'
            ' WITH CHECK (array_position((SELECT aforesaid.current_owners()), owner) IS NOT NULL)', guarded);
    END LOOP;
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
