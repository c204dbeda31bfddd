-- The doors: functions whose name begins with `api_` are what clients call. They run with the rights of the schema's
-- owner and see this schema alone, so a worker's role needs nothing but the right to call them.
DO $$
DECLARE _door record;
BEGIN
    FOR _door IN SELECT p.oid::regprocedure AS name, n.nspname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname = current_schema() AND p.proname LIKE 'api\_%' LOOP
        EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER SET search_path = %I, pg_temp', _door.name, _door.nspname);
    END LOOP;
END $$;
