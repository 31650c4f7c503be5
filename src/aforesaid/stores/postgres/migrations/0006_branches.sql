-- The lineage of a branch, as JSON: the conversations that its log continues, the nearest first. `root` is the last of them.

ALTER TABLE aforesaid.conversations ADD COLUMN lineage text;
ALTER TABLE aforesaid.conversations ADD COLUMN
    root uuid GENERATED ALWAYS AS ((lineage::jsonb -> -1 ->> 'conversation_id')::uuid) STORED;
CREATE INDEX conversations_by_root ON aforesaid.conversations (owner, root) WHERE root IS NOT NULL;

-- An expired conversation stays while a branch of its family is alive.
CREATE OR REPLACE FUNCTION aforesaid.purge(p_now timestamptz, p_limit bigint) RETURNS bigint
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
