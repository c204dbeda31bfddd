-- What jobs take of groups that have a limit, for claims beside others. Joins are written as 82_shared_exchange.sql
-- says.

-- The slots that jobs take of references that have a limit, and that limit. `i` is the job's index in the list.
CREATE OR REPLACE FUNCTION limited_needs(_seqs bigint[])
RETURNS TABLE (i bigint, ref text, slots integer, most integer) LANGUAGE sql STABLE AS $$
    SELECT s.i, n.ref COLLATE "C", n.slots, coalesce(g.declared, p.declared, g.submit)
    FROM unnest(_seqs) WITH ORDINALITY s (seq, i)
    CROSS JOIN LATERAL (SELECT * FROM job x WHERE x.seq = s.seq OFFSET 0) j
    CROSS JOIN LATERAL (
        SELECT 'cluster' AS ref, 1 AS slots, NULL::text AS pattern
        UNION ALL SELECT 'queue:' || j.queue, 1, NULL
        UNION ALL SELECT j.grp, j.cost, NULL
        UNION ALL SELECT j.grp || '/' || j.key, j.cost, j.grp || '/*' WHERE j.key IS NOT NULL
        UNION ALL SELECT e.key, e.value::integer, every_key(e.key) FROM jsonb_each_text(j.limits) e WHERE j.limits IS NOT NULL
    ) n
    LEFT JOIN LATERAL (SELECT * FROM effective_limit x WHERE x.ref = n.ref OFFSET 0) g ON true
    LEFT JOIN LATERAL (SELECT * FROM effective_limit x WHERE x.ref = n.pattern OFFSET 0) p ON true
    WHERE coalesce(g.declared, p.declared, g.submit) IS NOT NULL
$$;

-- The same, summed up by reference, for jobs whose columns are given.
CREATE OR REPLACE FUNCTION limited_sums(_queues text[], _groups text[], _keys text[], _costs integer[], _limits jsonb[])
RETURNS TABLE (ref text, slots integer, most integer) LANGUAGE sql STABLE AS $$
    WITH j AS MATERIALIZED (
        SELECT u.queue, u.grp, u.key, sum(u.cost) AS cost, count(*) AS jobs
        FROM unnest(_queues, _groups, _keys, _costs) u (queue, grp, key, cost) GROUP BY u.queue, u.grp, u.key
    ), k AS MATERIALIZED (
        -- For each group: its keys, the limit of GROUP/*, and whether a key has a limit of its own.
        SELECT g.*, (SELECT x.declared FROM effective_limit x WHERE x.ref = g.grp || '/*') AS every,
               (SELECT true FROM effective_limit x WHERE x.ref > g.grp || '/' AND x.ref < g.grp || '0' AND x.ref <> g.grp || '/*' ORDER BY x.ref LIMIT 1) AS some
        FROM (SELECT j.grp, array_agg(j.key) AS keys, array_agg(j.cost) AS costs FROM j WHERE j.key IS NOT NULL GROUP BY j.grp) g
    ), n AS (
        SELECT 'cluster' AS ref, sum(j.jobs) AS slots, NULL::text AS pattern FROM j
        UNION ALL SELECT 'queue:' || j.queue, sum(j.jobs), NULL FROM j GROUP BY j.queue
        UNION ALL SELECT j.grp, sum(j.cost), NULL FROM j GROUP BY j.grp
        UNION ALL SELECT k.grp || '/' || u.key, u.cost, k.grp || '/*' FROM k CROSS JOIN LATERAL unnest(k.keys, k.costs) u (key, cost) WHERE k.some
        UNION ALL SELECT e.key, e.value::bigint, every_key(e.key)
            FROM unnest(_limits) u (limits) CROSS JOIN LATERAL jsonb_each_text(u.limits) e WHERE u.limits IS NOT NULL
    )
    SELECT a.ref COLLATE "C", sum(a.slots)::integer, max(a.most) FROM (
        SELECT n.ref, n.slots, coalesce(g.declared, p.declared, g.submit) AS most
        FROM n LEFT JOIN LATERAL (SELECT * FROM effective_limit x WHERE x.ref = n.ref OFFSET 0) g ON true
        LEFT JOIN LATERAL (SELECT * FROM effective_limit x WHERE x.ref = n.pattern OFFSET 0) p ON true
        UNION ALL SELECT k.grp || '/' || u.key, u.cost, k.every FROM k CROSS JOIN LATERAL unnest(k.keys, k.costs) u (key, cost) WHERE k.some IS NULL
    ) a WHERE a.most IS NOT NULL AND a.slots > 0 GROUP BY 1
$$;

-- The same for jobs that are given by number.
CREATE OR REPLACE FUNCTION limited_sums_of(_seqs bigint[]) RETURNS TABLE (ref text, slots integer, most integer) LANGUAGE sql STABLE AS $$
    SELECT n.* FROM (
        SELECT array_agg(j.queue) AS queues, array_agg(j.grp) AS groups, array_agg(j.key) AS keys, array_agg(j.cost) AS costs,
               array_agg(j.limits) FILTER (WHERE j.limits IS NOT NULL) AS limits
        FROM unnest(_seqs) s (seq)
        CROSS JOIN LATERAL (SELECT x.queue, x.grp, x.key, x.cost, x.limits FROM job x WHERE x.seq = s.seq OFFSET 0) j OFFSET 0) a
    CROSS JOIN LATERAL limited_sums(a.queues, a.groups, a.keys, a.costs, a.limits) n
$$;

-- The same if no key has a limit: then the classes of the jobs tell all, and `job` is not read.
CREATE OR REPLACE FUNCTION limited_sums_of_classes(_queues text[], _classes text[])
RETURNS TABLE (ref text, slots integer, most integer) LANGUAGE sql STABLE AS $$
    WITH l AS MATERIALIZED (
        SELECT u.queue, string_to_array(u.class, ' ') AS words, count(*) AS jobs
        FROM unnest(_queues, _classes) u (queue, class) GROUP BY u.queue, u.class
    ), n AS (
        SELECT 'cluster' AS ref, sum(l.jobs) AS slots FROM l
        UNION ALL SELECT 'queue:' || l.queue, sum(l.jobs) FROM l GROUP BY l.queue
        UNION ALL SELECT l.words[2], sum(l.jobs * l.words[3]::integer) FROM l GROUP BY l.words[2]
        UNION ALL SELECT split_part(e, '=', 1), sum(l.jobs * split_part(e, '=', 2)::integer)
            FROM l CROSS JOIN LATERAL unnest(l.words[4:]) e GROUP BY split_part(e, '=', 1)
    )
    SELECT n.ref COLLATE "C", sum(n.slots)::integer, max(coalesce(g.declared, g.submit))
    FROM n CROSS JOIN LATERAL (SELECT * FROM effective_limit x WHERE x.ref = n.ref OFFSET 0) g
    WHERE coalesce(g.declared, g.submit) IS NOT NULL GROUP BY 1
$$;

-- Which of some jobs are blocked, in their order. `_scarce` lists the references that have less room than all jobs
-- together want, `_room` what each has. `lacks` is, for each blocked job, the index in `_scarce` of a full key, or NULL
-- if a full group blocks it too. `full_groups` lists the groups that block a job.
CREATE OR REPLACE FUNCTION contend(
    _seqs bigint[], _scarce text[], _room integer[], OUT blocked bigint[], OUT lacks integer[], OUT full_groups text[]
) LANGUAGE plpgsql AS $$
DECLARE _contenders bigint[]; _job record; _place integer; _lacks integer; _key_only boolean;
BEGIN
    blocked := '{}';
    lacks := '{}';
    full_groups := '{}';
    SELECT array_agg(j.seq) INTO _contenders FROM (
        SELECT s.seq FROM unnest(_seqs) WITH ORDINALITY s (seq, i)
        CROSS JOIN LATERAL (SELECT * FROM job x WHERE x.seq = s.seq OFFSET 0) x
        WHERE ARRAY['cluster', 'queue:' || x.queue, x.grp, x.grp || '/' || x.key] && _scarce OR coalesce(x.limits ?| _scarce, false)
        ORDER BY s.i) j;
    -- One by one, but only those that need a scarce reference: all other jobs have room.
    FOR _job IN
        SELECT _contenders[n.i] AS seq, array_agg(array_position(_scarce, n.ref)) AS places, array_agg(n.slots) AS slots
        FROM limited_needs(_contenders) n WHERE n.ref = ANY (_scarce) GROUP BY n.i ORDER BY n.i
    LOOP
        _lacks := NULL;
        _key_only := true;
        FOR _k IN 1 .. cardinality(_job.places) LOOP
            _place := _job.places[_k];
            IF _room[_place] < _job.slots[_k] THEN
                _lacks := _place;
                IF strpos(_scarce[_place], '/') = 0 THEN
                    _key_only := false;
                    IF _scarce[_place] <> ALL (full_groups) THEN full_groups := full_groups || _scarce[_place]; END IF;
                END IF;
            END IF;
        END LOOP;
        IF _lacks IS NULL THEN
            FOR _k IN 1 .. cardinality(_job.places) LOOP
                _place := _job.places[_k];
                _room[_place] := _room[_place] - _job.slots[_k];
            END LOOP;
        ELSE
            blocked := blocked || _job.seq;
            lacks := lacks || CASE WHEN _key_only THEN _lacks END;
        END IF;
    END LOOP;
END $$;

-- A job that waits for one of several keys may hold back jobs that wait for another of them. Which of them is next must
-- be decided job by job, so the exchange has to run alone.
CREATE OR REPLACE FUNCTION refuse_several_keys(_blocked bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM limited_needs(_blocked) n WHERE strpos(n.ref, '/') > 0 GROUP BY n.i HAVING count(*) > 1) THEN
        RAISE EXCEPTION 'this claim must run alone' USING ERRCODE = 'QOALO';
    END IF;
END $$;
