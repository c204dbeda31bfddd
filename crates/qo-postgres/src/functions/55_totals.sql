-- Totals: how often slots of a reference that has a limit were taken (`acquired`) and refused (`rejected`). Keys are
-- counted under GROUP/*, if that has a limit. The total goes with the reference's last limit.
--
-- No exchange changes a row that another one changes, so exchanges do not wait for each other:
--
-- 1. An exchange that claims inserts one row into `grants`: the references and how many of its jobs took slots of each.
-- 2. A refused submit or program inserts a row into `refusal`.
-- 3. A sweep, which runs alone, adds both to `total` and deletes them. Views add what no sweep has summed yet.
--
-- Every exchange holds the namespace lock shared until it commits. So the sweep sees all rows of `grants` that have drawn
-- a number so far, and `summed` says where the next sweep begins: it does not step over dead tuples.

-- How many jobs take slots of each reference, for jobs whose columns are given. `_keyed` says whether a job has a key.
CREATE OR REPLACE FUNCTION count_grants(_queues text[], _groups text[], _keyed boolean[], _limits jsonb[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH j AS MATERIALIZED (
        SELECT u.queue, u.grp, u.keyed, count(*) AS jobs
        FROM unnest(_queues, _groups, _keyed) u (queue, grp, keyed) GROUP BY u.queue, u.grp, u.keyed
    ), n AS MATERIALIZED (
        SELECT a.ref COLLATE "C" AS ref, sum(a.jobs)::bigint AS jobs FROM (
            SELECT 'cluster' AS ref, j.jobs FROM j
            UNION ALL SELECT 'queue:' || j.queue, j.jobs FROM j
            UNION ALL SELECT j.grp, j.jobs FROM j
            UNION ALL SELECT j.grp || '/*', j.jobs FROM j WHERE j.keyed
            UNION ALL SELECT coalesce(every_key(e.key), e.key), 1
                FROM unnest(_limits) u (limits) CROSS JOIN LATERAL jsonb_object_keys(u.limits) e (key) WHERE u.limits IS NOT NULL
        ) a GROUP BY 1
    )
    INSERT INTO grants (refs, jobs)
        SELECT array_agg(n.ref), array_agg(n.jobs)
        FROM n CROSS JOIN LATERAL (SELECT x.ref FROM effective_limit x WHERE x.ref = n.ref OFFSET 0) g HAVING count(*) > 0;
END $$;

-- The same for one job or program that takes slots of these references. The caller runs alone.
CREATE OR REPLACE FUNCTION count_grant(_refs text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH n AS MATERIALIZED (
        SELECT coalesce(every_key(r), r) COLLATE "C" AS ref, count(*) AS jobs FROM unnest(_refs) r GROUP BY 1
    )
    INSERT INTO grants (refs, jobs)
        SELECT array_agg(n.ref), array_agg(n.jobs)
        FROM n CROSS JOIN LATERAL (SELECT x.ref FROM effective_limit x WHERE x.ref = n.ref OFFSET 0) g HAVING count(*) > 0;
END $$;

-- Counts that a reference had no room, if it has a limit where it is counted. A number of the same sequence as those of
-- `submit_limit` says which came first.
CREATE OR REPLACE FUNCTION count_refusal(_ref text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _counted text := coalesce(every_key(_ref), _ref);
BEGIN
    IF limit_of(_counted) IS NOT NULL THEN INSERT INTO refusal (ref) VALUES (_counted); END IF;
END $$;

-- Adds what was counted since the last time. The caller runs alone.
CREATE OR REPLACE FUNCTION sum_totals() RETURNS void LANGUAGE plpgsql AS $$
DECLARE _from bigint := (SELECT s.n FROM summed s); _to bigint;
BEGIN
    SELECT max(g.n) INTO _to FROM grants g WHERE g.n > _from;
    IF _to IS NOT NULL THEN
        WITH gone AS (DELETE FROM grants g WHERE g.n > _from RETURNING g.refs, g.jobs)
        INSERT INTO total AS t (ref, acquired)
            SELECT u.ref COLLATE "C", sum(u.jobs) FROM gone g CROSS JOIN LATERAL unnest(g.refs, g.jobs) u (ref, jobs) GROUP BY 1
            ON CONFLICT (ref) DO UPDATE SET acquired = t.acquired + excluded.acquired;
        UPDATE summed SET n = _to;
    END IF;
    IF EXISTS (SELECT FROM refusal) THEN
        WITH gone AS (DELETE FROM refusal RETURNING ref)
        INSERT INTO total AS t (ref, rejected)
            SELECT g.ref, count(*) FROM gone g GROUP BY g.ref
            ON CONFLICT (ref) DO UPDATE SET rejected = t.rejected + excluded.rejected;
    END IF;
END $$;

-- The last limit of a reference goes, and its total with it; refusals that came after number `_after`, if it is given,
-- stay. The caller runs alone.
CREATE OR REPLACE FUNCTION forget_total(_ref text, _after bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _later bigint;
BEGIN
    SELECT count(*) INTO _later FROM refusal r WHERE r.ref = _ref AND r.n > _after;
    PERFORM sum_totals();
    DELETE FROM total t WHERE t.ref = _ref;
    IF _later > 0 THEN INSERT INTO total (ref, rejected) VALUES (_ref, _later); END IF;
END $$;

-- The total of a reference that has a limit.
CREATE OR REPLACE FUNCTION total_of(_ref text, OUT acquired bigint, OUT rejected bigint) LANGUAGE plpgsql STABLE AS $$
BEGIN
    SELECT t.acquired, t.rejected INTO acquired, rejected FROM total t WHERE t.ref = _ref;
    acquired := coalesce(acquired, 0) + coalesce((
        SELECT sum(u.jobs) FROM grants g CROSS JOIN LATERAL unnest(g.refs, g.jobs) u (ref, jobs)
        WHERE g.n > (SELECT s.n FROM summed s) AND u.ref = _ref), 0);
    rejected := coalesce(rejected, 0) + (SELECT count(*) FROM refusal r WHERE r.ref = _ref);
END $$;
