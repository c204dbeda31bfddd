-- What an upgrade finds, for `99_doors.sql`: which roles may call which door, which tables there are, and which roles
-- may read every table, but for the tokens. Kept in a setting of the transaction.
SELECT set_config('qo.before', jsonb_build_object(
    'doors', coalesce((SELECT jsonb_object_agg(d.door, d.roles) FROM (
        SELECT p.proname AS door, coalesce(jsonb_agg(DISTINCT r.rolname) FILTER (WHERE r.oid IS NOT NULL), '[]') AS roles
        FROM pg_proc p LEFT JOIN LATERAL aclexplode(p.proacl) a ON a.grantee <> p.proowner LEFT JOIN pg_roles r ON r.oid = a.grantee
        WHERE p.pronamespace = current_schema()::regnamespace AND (p.proname LIKE 'api\_%' OR p.proname IN ('submit', 'submit_many'))
        GROUP BY p.proname) d), '{}'),
    'tables', coalesce((SELECT jsonb_agg(c.relname) FROM pg_class c
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'), '[]'),
    'lookers', coalesce((SELECT jsonb_agg(l.rolname) FROM (
        SELECT r.rolname FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a JOIN pg_roles r ON r.oid = a.grantee
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND c.relname <> 'token' AND a.privilege_type = 'SELECT' AND a.grantee <> c.relowner
        GROUP BY r.rolname
        HAVING count(DISTINCT c.oid) = (SELECT count(*) FROM pg_class t
            WHERE t.relnamespace = current_schema()::regnamespace AND t.relkind = 'r' AND t.relname <> 'token')) l), '[]'))::text, true);
