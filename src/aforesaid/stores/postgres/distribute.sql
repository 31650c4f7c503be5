-- Distribute the tables by owner. A table must come after the tables it refers to.
--
-- Three features of a single server are missing on distributed tables:
--
--   - A foreign key that clears one column on deletion. `api.contacts` clears it by its own trigger; deleting a contact
--     from `aforesaid.contacts` directly leaves the reference.
--   - `set_config` does not reach other nodes; `SET LOCAL` does if `citus.propagate_set_commands` is 'local'. So the
--     functions below use SET LOCAL. A gateway that sets the claims of a token must do the same.
--   - A policy with a sub-select. The policies below call the function directly.
--
-- The search terms are a setting too: see `aforesaid.set_search_terms`. A search names a partition of the log, which is
-- distributed with it.

ALTER TABLE aforesaid.conversations DROP CONSTRAINT conversations_client;

CREATE OR REPLACE FUNCTION aforesaid.set_owner(p_name text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL citus.propagate_set_commands = 'local';
    EXECUTE format('SET LOCAL aforesaid.owner = %L', p_name);
END
$$;

CREATE OR REPLACE FUNCTION aforesaid.set_search_terms(p_terms text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL citus.propagate_set_commands = 'local';
    EXECUTE format('SET LOCAL aforesaid.terms = %L', array_to_string(p_terms, ' '));
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
            ' USING (owner = aforesaid.current_owner()) WITH CHECK (owner = aforesaid.current_owner())', guarded);
        EXECUTE format(
            'ALTER POLICY operators ON aforesaid.%I'
            ' USING (current_setting(''aforesaid.operator'', true) = ''on'')', guarded);
    END LOOP;
    FOR guarded IN
        SELECT c.relname FROM pg_policy AS p JOIN pg_class AS c ON c.oid = p.polrelid
        WHERE c.relnamespace = 'aforesaid'::regnamespace AND p.polname = 'matching_rows'
    LOOP
        EXECUTE format(
            'ALTER POLICY matching_rows ON aforesaid.%I USING (owner = aforesaid.current_owner()'
            ' AND terms @@ aforesaid.search_query(aforesaid.current_owner()))', guarded);
    END LOOP;
END
$$;

SELECT create_reference_table('aforesaid.notification_key');
SELECT create_distributed_table('aforesaid.contacts', 'owner');
SELECT create_distributed_table('aforesaid.conversations', 'owner', colocate_with => 'aforesaid.contacts');
SELECT create_distributed_table('aforesaid.messages', 'owner', colocate_with => 'aforesaid.contacts');
SELECT create_distributed_table('aforesaid.sessions', 'owner', colocate_with => 'aforesaid.contacts');
SELECT create_distributed_table('aforesaid.documents', 'owner', colocate_with => 'aforesaid.contacts');

DO $$
BEGIN
    IF to_regclass('aforesaid.vectors') IS NOT NULL THEN
        PERFORM create_distributed_table('aforesaid.vectors', 'owner', colocate_with => 'aforesaid.contacts');
    END IF;
END
$$;
