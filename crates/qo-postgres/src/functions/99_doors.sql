-- The doors: functions that clients call. Their names begin with `api_`, or are `submit` and `submit_many`. They run
-- with the rights of the schema's owner and with this schema alone in their search path, so a worker's role needs the
-- right to call them and no other.
--
-- Their plans must not depend on statistics: a queue is empty one minute and has a million rows the next. So a door
-- plans once for any values, by index and nested loop.
DO $$
DECLARE _door record;
BEGIN
    FOR _door IN SELECT p.oid::regprocedure AS name, n.nspname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname = current_schema() AND (p.proname LIKE 'api\_%' OR p.proname IN ('submit', 'submit_many')) LOOP
        EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER SET search_path = %I, pg_temp', _door.name, _door.nspname);
        EXECUTE format('ALTER FUNCTION %s SET plan_cache_mode = force_generic_plan', _door.name);
        EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off', _door.name);
        EXECUTE format('ALTER FUNCTION %s SET enable_hashjoin = off', _door.name);
        EXECUTE format('ALTER FUNCTION %s SET enable_mergejoin = off', _door.name);
        EXECUTE format('ALTER FUNCTION %s SET enable_bitmapscan = off', _door.name);
        EXECUTE format('ALTER FUNCTION %s SET jit = off', _door.name);
    END LOOP;
END $$;

-- No role may call a function unless `allow` lets it.
DO $$ BEGIN EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA %I FROM PUBLIC', current_schema()); END $$;

-- Doors that show the hashes of tokens, make a role an administrator of every server, or write to the audit log: a worker
-- that could write there could push out what operators did. The part 'work' leaves them shut, and an upgrade opens them
-- to no role.
CREATE OR REPLACE FUNCTION is_admin_door(_name name) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT _name IN ('api_create_token', 'api_revoke_token', 'api_tokens', 'api_record')
$$;
DO $$ BEGIN EXECUTE format('REVOKE ALL ON FUNCTION is_admin_door(name) FROM PUBLIC'); END $$;

-- An upgrade gives no role a right that it did not have, and takes none away (migrations/before.sql). A door that was
-- made again is open to the same roles. A new door is open to the roles that may call `api_exchange`, unless it is an
-- admin's door. A new table may be read by the roles that could read every table, but not the table of tokens.
DO $$
DECLARE _before jsonb := current_setting('qo.before')::jsonb; _grant record;
BEGIN
    FOR _grant IN SELECT p.oid::regprocedure AS door, r.role FROM pg_proc p
        CROSS JOIN LATERAL jsonb_array_elements_text(
            coalesce(_before->'doors'->p.proname::text,
                CASE WHEN NOT is_admin_door(p.proname) THEN _before->'doors'->'api_exchange' END, '[]')) r (role)
        WHERE p.pronamespace = current_schema()::regnamespace
          AND (p.proname LIKE 'api\_%' OR p.proname IN ('submit', 'submit_many')) LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', _grant.door, _grant.role);
    END LOOP;
    FOR _grant IN SELECT c.oid::regclass AS made, r.role FROM pg_class c
        CROSS JOIN LATERAL jsonb_array_elements_text(_before->'lookers') r (role)
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND NOT _before->'tables' ? c.relname::text
          AND c.relname <> 'token' LOOP
        EXECUTE format('GRANT SELECT ON TABLE %s TO %I', _grant.made, _grant.role);
    END LOOP;
END $$;

-- Lets a role do one part: 'submit' (the two SQL functions), 'work' (every door but an admin's), 'admin' (every door: what
-- `qo serve` needs to check tokens and to record what operators do) or 'look' (read the tables, but for the tokens). Only the owner of the
-- schema may call it.
CREATE OR REPLACE FUNCTION allow(_role name, _part text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _schema name := (SELECT n.nspname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE p.oid = 'allow(name, text)'::regprocedure); _door regprocedure;
    _table regclass;
BEGIN
    IF _part NOT IN ('submit', 'work', 'admin', 'look') THEN
        RAISE EXCEPTION 'part: %: must be submit, work, admin or look', _part USING ERRCODE = 'QOINV';
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', _schema, _role);
    IF _part = 'look' THEN
        FOR _table IN SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = _schema AND c.relkind = 'r' AND c.relname <> 'token' LOOP
            EXECUTE format('GRANT SELECT ON TABLE %s TO %I', _table, _role);
        END LOOP;
    END IF;
    FOR _door IN SELECT p.oid FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname = _schema AND (_part = 'submit' AND p.proname IN ('submit', 'submit_many')
            OR (_part = 'admin' OR _part = 'work' AND NOT is_admin_door(p.proname))
                AND (p.proname LIKE 'api\_%' OR p.proname IN ('submit', 'submit_many'))) LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', _door, _role);
    END LOOP;
END $$;
DO $$ BEGIN
    EXECUTE format('REVOKE ALL ON FUNCTION allow(name, text) FROM PUBLIC');
    EXECUTE format('ALTER FUNCTION allow(name, text) SET search_path = %I, pg_temp', current_schema());
END $$;
