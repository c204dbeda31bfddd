-- What views show: the namespace as a claim would find it, with what is over ended. Nothing is ended for it and no lock
-- is taken: all is computed from one snapshot, so a view also works in a read-only transaction.
--
-- Two lists say what is over. `_over`: jobs whose attempt or claim is over, because its session, its timeout or the
-- claim itself is. `_gone`: those of them that end by it, and the first {{FORESEEN}} jobs that expire in line. A job in
-- `_gone` is not live; a job in `_over` alone is pending. Programs are judged by their own date.
--
-- The lists may be long. So they are asked with `NOT IN (SELECT unnest(...))`, which PostgreSQL hashes.

-- The two lists. The cost is the number of what is over.
CREATE OR REPLACE FUNCTION over_at(_now bigint, OUT _over bigint[], OUT _gone bigint[]) LANGUAGE plpgsql STABLE AS $$
BEGIN
    SELECT coalesce(array_agg(e.seq), '{}'), coalesce(array_agg(e.seq) FILTER (WHERE e.ends), '{}') INTO _over, _gone FROM (
        SELECT h.seq, is_over(j.good_until, _now)
            OR h.state = 'running' AND (h.cancel OR j.attempts_used + 1 >= j.max_attempts) AS ends
        FROM (
            SELECT x.* FROM session s CROSS JOIN LATERAL (SELECT * FROM owned_job y WHERE y.session = s.session OFFSET 0) x
                WHERE s.lease_until <= _now
            UNION ALL
            SELECT x.* FROM owned_job x WHERE x.until <= _now
                AND NOT is_over((SELECT s.lease_until FROM session s WHERE s.session = x.session), _now)
        ) h CROSS JOIN LATERAL (SELECT * FROM job x WHERE x.seq = h.seq OFFSET 0) j) e;
    _gone := _gone || ARRAY(SELECT j.seq FROM job j WHERE j.good_until <= _now AND (SELECT true FROM line l WHERE l.seq = j.seq)
        ORDER BY j.good_until, j.seq LIMIT {{FORESEEN}});
END $$;

-- The state in which a job of `_gone` ends.
CREATE OR REPLACE FUNCTION end_of(_job job, _owned owned_job) RETURNS job_state LANGUAGE sql IMMUTABLE AS $$
    SELECT (CASE WHEN _owned.state = 'running' AND _owned.cancel THEN 'cancelled'
        WHEN _owned.state = 'running' AND _job.attempts_used + 1 >= _job.max_attempts THEN 'failed' ELSE 'expired' END)::job_state
$$;

-- Like `head_of`. A step in `_gone` halts its workflow or is passed, like one that has ended.
CREATE OR REPLACE FUNCTION head_at(_over bigint[], _gone bigint[], _workflow text)
RETURNS TABLE (step integer, seq bigint, id uuid, state job_state) LANGUAGE plpgsql STABLE AS $$
DECLARE _halts boolean := EXISTS (SELECT FROM workflow w WHERE w.workflow = _workflow AND w.on_failure = 'halt' AND NOT w.cancelled);
BEGIN
    RETURN QUERY SELECT s.* FROM (
        (SELECT j.step, j.seq, j.id, CASE WHEN j.seq = ANY (_gone) THEN end_of(j, h)
                WHEN h.seq IS NULL OR j.seq = ANY (_over) THEN 'pending' ELSE h.state END
            FROM job j LEFT JOIN LATERAL (SELECT * FROM owned_job x WHERE x.seq = j.seq OFFSET 0) h ON true
            WHERE j.workflow = _workflow AND (_halts OR j.seq <> ALL (_gone)) ORDER BY j.step LIMIT 1)
        UNION ALL
        (SELECT d.step, d.seq, d.id, d.state FROM done d
            WHERE _halts AND d.workflow = _workflow AND d.state <> 'succeeded' AND NOT d.skipped ORDER BY d.step LIMIT 1)
    ) s (step, seq, id, state) ORDER BY s.step LIMIT 1;
END $$;

-- Like `other_running_step`.
CREATE OR REPLACE FUNCTION other_running_step_at(_over bigint[], _workflow text, _seq bigint)
RETURNS TABLE (step integer, seq bigint, id uuid, state job_state) LANGUAGE sql STABLE AS $$
    SELECT j.step, j.seq, j.id, h.state FROM job j
    CROSS JOIN LATERAL (SELECT x.state FROM owned_job x WHERE x.seq = j.seq OFFSET 0) h
    WHERE j.workflow = _workflow AND h.state = 'running' AND j.seq <> _seq AND j.seq <> ALL (_over) ORDER BY j.step LIMIT 1
$$;

-- Like `is_next`.
CREATE OR REPLACE FUNCTION is_next_at(_over bigint[], _gone bigint[], _workflow text, _seq bigint) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN _workflow IS NULL OR ((SELECT h.seq FROM head_at(_over, _gone, _workflow) h) = _seq
        AND NOT EXISTS (SELECT FROM other_running_step_at(_over, _workflow, _seq)));
END $$;

-- Like `used_by_holders`.
CREATE OR REPLACE FUNCTION used_at(_now bigint, _over bigint[], _ref text) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce((SELECT sum(slots_of(j.job, _ref)) FROM owned_job h
            CROSS JOIN LATERAL (SELECT x AS job FROM job x WHERE x.seq = h.seq OFFSET 0) j
            WHERE h.state = 'running' AND h.seq NOT IN (SELECT unnest(_over))), 0)
         + coalesce((SELECT sum(slots_of(p, _ref)) FROM program p WHERE p.until > _now), 0);
END $$;

-- Like `is_live`.
CREATE OR REPLACE FUNCTION live_at(_now bigint, _gone bigint[], _ref text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE _name text := split_part(_ref, '/', 1); _key text := CASE WHEN strpos(_ref, '/') > 0 THEN substr(_ref, strpos(_ref, '/') + 1) END;
BEGIN
    RETURN EXISTS (SELECT FROM job j WHERE j.grp = _name AND (_key IS NULL OR j.key = _key) AND j.seq NOT IN (SELECT unnest(_gone)))
        OR EXISTS (SELECT FROM extra_limit e WHERE e.ref = _ref AND e.seq NOT IN (SELECT unnest(_gone)))
        OR EXISTS (SELECT FROM programs_of(_ref) p WHERE p.until > _now);
END $$;

-- Whether the submit-side limit of a group goes with its last live job or program.
CREATE OR REPLACE FUNCTION is_spent_at(_now bigint, _gone bigint[], _ref text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM submit_limit b WHERE b.ref = _ref) AND NOT live_at(_now, _gone, _ref);
END $$;

-- Like `reserved_for`, for a job that starts: a big job that goes back into line counts too.
CREATE OR REPLACE FUNCTION reserved_at(
    _now bigint, _over bigint[], _gone bigint[], _ref text, _slots integer, _place bigint[]
) RETURNS uuid LANGUAGE plpgsql STABLE AS $$
DECLARE _limit integer := limit_of(_ref); _left bigint; _big record; _job job;
BEGIN
    IF _limit IS NULL OR _limit < 2 THEN RETURN NULL; END IF;
    _left := greatest(_limit - used_at(_now, _over, _ref) - _slots, 0);
    FOR _big IN SELECT b.seq, n.slots AS need, ARRAY[queue_priority(j.queue), j.priority, j.run_at, b.seq]::bigint[] AS place
        FROM (SELECT l.seq FROM line l WHERE l.big AND l.run_at <= _now AND l.seq NOT IN (SELECT unnest(_gone))
              UNION ALL SELECT o FROM unnest(_over) o WHERE o NOT IN (SELECT unnest(_gone))) b
        CROSS JOIN LATERAL (SELECT x.grp, x.key, x.cost, x.limits, x.queue, x.priority, x.run_at FROM job x WHERE x.seq = b.seq OFFSET 0) j
        CROSS JOIN LATERAL needs(j.grp, j.key, j.cost, j.limits, j.queue) n
        WHERE j.run_at <= _now AND n.ref = _ref AND n.slots >= 2
        ORDER BY queue_priority(j.queue), j.priority, j.run_at, b.seq
    LOOP
        CONTINUE WHEN _big.need > _limit OR _left >= _big.need;
        EXIT WHEN _big.place >= _place;
        SELECT * INTO _job FROM job j WHERE j.seq = _big.seq;
        CONTINUE WHEN is_paused(_job.queue) OR NOT is_next_at(_over, _gone, _job.workflow, _job.seq);
        CONTINUE WHEN NOT EXISTS (SELECT FROM session s
            WHERE s.lease_until > _now AND NOT s.draining AND serves(s, _job.queue, _job.task));
        -- The big job may lack slots of this reference only; if this is its key, also slots of its group.
        CONTINUE WHEN EXISTS (
            SELECT FROM needs_of(_job) n
            WHERE n.ref <> _ref AND NOT (_job.key IS NOT NULL AND _ref = _job.grp || '/' || _job.key AND n.ref = _job.grp)
              AND n.slots > limit_of(n.ref) - used_at(_now, _over, n.ref));
        RETURN _job.id;
    END LOOP;
    RETURN NULL;
END $$;
