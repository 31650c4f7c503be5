-- Vectors in rows, for servers with pgvector. `{extension}` is the schema of the extension.
--
-- The documents of the kind `vectors/…` are authoritative. A row is a copy of one vector of a document, created before
-- the first vector search; `unrolled` lists the documents with rows. There is no approximate index: all vectors of an
-- owner are compared, so the result is exact.

ALTER TABLE aforesaid.documents ADD COLUMN unrolled boolean NOT NULL DEFAULT false;

CREATE INDEX documents_to_unroll ON aforesaid.documents (owner, kind)
    WHERE NOT unrolled AND conversation_id IS NOT NULL;

CREATE FUNCTION aforesaid.reset_unrolled() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    NEW.unrolled := false;
    RETURN NEW;
END
$$;

CREATE TRIGGER other_vectors BEFORE UPDATE OF data ON aforesaid.documents
    FOR EACH ROW EXECUTE FUNCTION aforesaid.reset_unrolled();

-- `kind` names the model; `dimension` is the length of its vectors.
CREATE TABLE aforesaid.vectors (
    owner text COLLATE "C" NOT NULL,
    conversation_id uuid NOT NULL,
    kind text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    micros bigint NOT NULL,
    sequence bigint NOT NULL,
    dimension integer NOT NULL,
    vector {extension}.vector NOT NULL,
    PRIMARY KEY (owner, kind, conversation_id, sequence),
    FOREIGN KEY (owner, conversation_id, kind, key)
        REFERENCES aforesaid.documents (owner, conversation_id, kind, key) ON DELETE CASCADE
) PARTITION BY HASH (owner);

CREATE INDEX vectors_by_document ON aforesaid.vectors (owner, conversation_id, kind, key);

-- Roles have the same access to the vectors as to `aforesaid.documents`.
DO $$
DECLARE
    name text;
    role name;
    pin record;
BEGIN
    FOR part IN 0..15 LOOP
        name := 'vectors_' || lpad(part::text, 2, '0');
        EXECUTE format(
            'CREATE TABLE aforesaid.%I PARTITION OF aforesaid.vectors'
            ' FOR VALUES WITH (MODULUS 16, REMAINDER %s)', name, part);
        PERFORM aforesaid.enable_row_security(name);
    END LOOP;
    PERFORM aforesaid.enable_row_security('vectors');
    -- A sample of vectors in the server's statistics would outlive them.
    ALTER TABLE aforesaid.vectors ALTER COLUMN vector SET STATISTICS 0;
    FOR role IN
        SELECT g.rolname FROM pg_class AS t, aclexplode(t.relacl) AS a JOIN pg_roles AS g ON g.oid = a.grantee
        WHERE t.oid = 'aforesaid.documents'::regclass AND a.privilege_type = 'INSERT'
    LOOP
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON aforesaid.vectors TO %I', role);
    END LOOP;
    FOR pin IN
        SELECT p.policyname, p.roles, p.qual FROM pg_policies AS p
        WHERE p.schemaname = 'aforesaid' AND p.tablename = 'documents' AND p.policyname LIKE 'only\_%'
    LOOP
        EXECUTE format(
            'CREATE POLICY %I ON aforesaid.vectors AS RESTRICTIVE TO %I USING (%s) WITH CHECK (%s)',
            pin.policyname, pin.roles[1], pin.qual, pin.qual);
    END LOOP;
END
$$;

-- Replace the rows of a document by its vectors.
CREATE FUNCTION aforesaid.unpack_vectors(
    p_owner text, p_id uuid, p_kind text, p_key text, p_dimension integer,
    p_micros bigint[], p_sequences bigint[], p_vectors text[]
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM aforesaid.vectors AS v
    WHERE v.owner = p_owner AND v.conversation_id = p_id AND v.kind = p_kind AND v.key = p_key;
    INSERT INTO aforesaid.vectors AS v (owner, conversation_id, kind, key, micros, sequence, dimension, vector)
    SELECT p_owner, p_id, p_kind, p_key, made.micros, made.sequence, p_dimension, made.vector::{extension}.vector
    FROM unnest(p_micros, p_sequences, p_vectors) AS made (micros, sequence, vector)
    ON CONFLICT (owner, kind, conversation_id, sequence) DO UPDATE
        SET key = excluded.key, micros = excluded.micros, dimension = excluded.dimension, vector = excluded.vector;
    UPDATE aforesaid.documents AS d SET unrolled = true
    WHERE d.owner = p_owner AND d.conversation_id = p_id AND d.kind = p_kind AND d.key = p_key;
END
$$;

-- Return the owner's messages with the most similar vectors, relative to `p_around` or to the origin.
CREATE FUNCTION aforesaid.nearest(
    p_name text, p_owner text, p_now timestamptz, p_kind text, p_dimension integer,
    p_vector text, p_around text, p_limit bigint
) RETURNS TABLE (conversation_id uuid, micros bigint, sequence bigint, similarity double precision)
LANGUAGE plpgsql AS $$
DECLARE
    around {extension}.vector := p_around::{extension}.vector;
    asked {extension}.vector := p_vector::{extension}.vector;
BEGIN
    PERFORM aforesaid.set_owner(p_name);
    IF around IS NOT NULL THEN
        asked := asked OPERATOR({extension}.-) around;
    END IF;
    RETURN QUERY
        SELECT near.conversation_id, near.micros, near.sequence, 1 - near.distance
        FROM (
            SELECT v.conversation_id, v.micros, v.sequence,
                CASE WHEN around IS NULL THEN v.vector OPERATOR({extension}.<=>) asked
                ELSE (v.vector OPERATOR({extension}.-) around) OPERATOR({extension}.<=>) asked END AS distance
            FROM aforesaid.vectors AS v
            JOIN aforesaid.conversations AS c
                ON c.owner = p_owner AND c.id = v.conversation_id
                AND (c.expires_at IS NULL OR c.expires_at > p_now)
            WHERE v.owner = p_owner AND v.kind = p_kind AND v.dimension = p_dimension
        ) AS near
        WHERE near.distance <> 'NaN'
        ORDER BY near.distance, near.micros DESC, near.sequence DESC, near.conversation_id
        LIMIT p_limit;
END
$$;
