-- The doors: functions whose name begins with `api_` are what clients call. They run with the rights of the schema's
-- owner and see this schema alone, so a worker's role needs nothing but the right to call them.
--
-- Their plans must not depend on statistics: a queue is empty one minute and has a million rows the next. So they are
-- made once, for any values, and go by index and nested loop.
DO $$
DECLARE _door record;
BEGIN
    FOR _door IN SELECT p.oid::regprocedure AS name, n.nspname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname = current_schema() AND p.proname LIKE 'api\_%' LOOP
        EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER SET search_path = %I, pg_temp', _door.name, _door.nspname);
        EXECUTE format('ALTER FUNCTION %s SET plan_cache_mode = force_generic_plan', _door.name);
        EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off', _door.name);
        EXECUTE format('ALTER FUNCTION %s SET enable_hashjoin = off', _door.name);
        EXECUTE format('ALTER FUNCTION %s SET enable_mergejoin = off', _door.name);
        EXECUTE format('ALTER FUNCTION %s SET enable_bitmapscan = off', _door.name);
        EXECUTE format('ALTER FUNCTION %s SET jit = off', _door.name);
    END LOOP;
END $$;
