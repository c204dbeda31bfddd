-- Views. They take no lock: each shows what was committed when it began, with what is over ended (89_foreseen.sql).
-- Joins are written as 82_shared_exchange.sql says.

CREATE OR REPLACE FUNCTION running_view(_owned owned_job) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('worker', _owned.worker, 'session', _owned.session, 'token', _owned.token,
        'since', _owned.since, 'lease_until', least(_owned.until, s.lease_until), 'progress', _owned.progress)
    FROM session s WHERE s.session = _owned.session
$$;

CREATE OR REPLACE FUNCTION job_view(_job job, _owned owned_job, _state job_state, _finished_at bigint) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('id', _job.id, 'state', _state, 'queue', _job.queue, 'task', _job.task, 'group', _job.grp,
        'key', _job.key, 'cost', _job.cost, 'limits', coalesce(_job.limits, '{}'), 'priority', _job.priority,
        'submitted_at', _job.submitted_at, 'run_at', _job.run_at, 'good_until', _job.good_until,
        'timeout_ms', _job.timeout_ms, 'retry', _job.retry, 'limit', _job.submit_limit,
        'idempotency_key', _job.idempotency_key, 'traceparent', _job.traceparent, 'attempts_used', _job.attempts_used, 'max_attempts', _job.max_attempts,
        'cancel_requested', coalesce(_owned.cancel AND _state = 'running', false),
        'running', CASE WHEN _state = 'running' THEN running_view(_owned) END,
        'claimed', CASE WHEN _state = 'claimed' THEN running_view(_owned) END,
        'workflow', _job.workflow, 'step', _job.step, 'skipped', _job.skipped, 'finished_at', _finished_at)
$$;

-- The columns that an ended job has in common with a live one.
CREATE OR REPLACE FUNCTION as_job(_done done) RETURNS job LANGUAGE sql STABLE AS $$
    SELECT ROW(_done.seq, _done.id, _done.task, _done.queue, _done.grp, _done.key, _done.cost, _done.limits,
        _done.priority, _done.submitted_at, _done.run_at, _done.good_until, _done.max_attempts, _done.retry,
        _done.timeout_ms, _done.submit_limit, _done.idempotency_key, _done.workflow, _done.step, _done.skipped,
        _done.attempts_used, attempts_of(_done), _done.payload, _done.traceparent)::job
$$;

CREATE OR REPLACE FUNCTION api_job(_id uuid) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE _job job; _owned owned_job; _done done; _now bigint; _over text;
BEGIN
    SELECT * INTO _job FROM job j WHERE j.id = _id;
    IF FOUND THEN
        SELECT * INTO _owned FROM owned_job h WHERE h.seq = _job.seq;
        IF FOUND THEN
            _now := store_time();
            _over := goes_back(_now, _job, _owned);
        END IF;
        IF _over IS NOT NULL THEN
            IF _owned.state = 'running' THEN
                _job.attempts := with_attempt(_job.attempts, _job.attempts_used, _owned.token, _owned.worker, _owned.session,
                    _owned.since, _now, _over, replace(_over, '_', ' '), 'pending');
                _job.attempts_used := _job.attempts_used + 1;
            END IF;
            _owned := NULL;
        END IF;
        RETURN job_view(_job, _owned, coalesce(_owned.state, 'pending'), NULL)
            || jsonb_build_object('payload', _job.payload, 'output', NULL, 'attempts', _job.attempts);
    END IF;
    SELECT * INTO _done FROM done d WHERE d.id = _id;
    IF NOT FOUND THEN PERFORM refuse('not_found', 'job ' || _id); END IF;
    RETURN job_view(as_job(_done), NULL, _done.state, _done.finished_at)
        || jsonb_build_object('payload', _done.payload, 'output', _done.output, 'attempts', attempts_of(_done));
END $$;

-- A live job in a list.
CREATE OR REPLACE FUNCTION live_view(_now bigint, _job job, _owned owned_job) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE _over text := goes_back(_now, _job, _owned);
BEGIN
    IF _over IS NULL THEN RETURN job_view(_job, _owned, coalesce(_owned.state, 'pending'), NULL); END IF;
    IF _owned.state = 'running' THEN _job.attempts_used := _job.attempts_used + 1; END IF;
    RETURN job_view(_job, NULL, 'pending', NULL);
END $$;

-- The jobs that match a filter, behind a number, in the filter's order. The query has only the conditions that are given,
-- and its plan knows their values. Steps of a workflow, and ids with a long beginning, are few: `+ 0` makes the plan find
-- them by their own index instead of walking along the numbers.
CREATE OR REPLACE FUNCTION found_jobs(_now bigint, _filter jsonb, _after bigint, _most integer)
RETURNS TABLE (seq bigint, has_ended boolean) LANGUAGE plpgsql STABLE AS $$
DECLARE
    _prefix text := replace(_filter->>'id_prefix', '-', '');
    _first uuid := rpad(_prefix, 32, '0')::uuid; _last uuid := rpad(_prefix, 32, 'f')::uuid;
    _states job_state[] := ARRAY(SELECT jsonb_array_elements_text(coalesce(_filter->'states', '[]')))::job_state[];
    _down boolean := coalesce((_filter->>'newest_first')::boolean, false);
    _order text := CASE WHEN _filter->>'workflow' IS NOT NULL OR length(_prefix) >= 8 THEN 'x.seq + 0' ELSE 'x.seq' END
        || CASE WHEN _down THEN ' DESC' ELSE '' END;
    _where text := concat_ws(' AND ',
        CASE WHEN _after IS NULL THEN 'true' WHEN _down THEN 'x.seq < $3' ELSE 'x.seq > $3' END,
        CASE WHEN _filter->>'queue' IS NOT NULL THEN $_$x.queue = $2->>'queue'$_$ END,
        CASE WHEN _filter->>'task' IS NOT NULL THEN $_$x.task = $2->>'task'$_$ END,
        CASE WHEN _filter->>'group' IS NOT NULL THEN $_$x.grp = $2->>'group'$_$ END,
        CASE WHEN _filter->>'key' IS NOT NULL THEN $_$x.key = $2->>'key'$_$ END,
        CASE WHEN _filter->>'workflow' IS NOT NULL THEN $_$x.workflow = $2->>'workflow'$_$ END,
        CASE WHEN _filter->>'submitted_from' IS NOT NULL THEN $_$x.submitted_at >= ($2->>'submitted_from')::bigint$_$ END,
        CASE WHEN _filter->>'submitted_before' IS NOT NULL THEN $_$x.submitted_at < ($2->>'submitted_before')::bigint$_$ END,
        CASE WHEN _prefix IS NOT NULL THEN 'x.id BETWEEN $4 AND $5' END);
    _live text := CASE WHEN _states <> '{}'
        THEN $_$ AND CASE WHEN h.seq IS NULL THEN 'pending' ELSE shown_state($1, x, h) END = ANY ($6)$_$ ELSE '' END;
    _ended text := CASE WHEN _states <> '{}' THEN ' AND x.state = ANY ($6)' ELSE '' END;
BEGIN
    RETURN QUERY EXECUTE format(
        'SELECT f.seq, f.has_ended FROM (
            (SELECT x.seq, false AS has_ended FROM job x
                LEFT JOIN LATERAL (SELECT * FROM owned_job o WHERE o.seq = x.seq OFFSET 0) h ON true
                WHERE %1$s ORDER BY %3$s LIMIT $7)
            UNION ALL
            (SELECT x.seq, true FROM done x WHERE %2$s ORDER BY %3$s LIMIT $7)) f ORDER BY f.seq %4$s LIMIT $7',
        _where || _live, _where || _ended, _order, CASE WHEN _down THEN 'DESC' ELSE '' END)
        USING _now, _filter, _after, _first, _last, _states, _most;
END $$;

CREATE OR REPLACE FUNCTION api_jobs(_filter jsonb, _after bigint, _limit integer) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE _now bigint := store_time();
BEGIN
    PERFORM check_none(filter_mistake(_filter));
    RETURN (
        WITH found AS (
            SELECT f.* FROM found_jobs(_now, _filter, _after, _limit + 1) WITH ORDINALITY f (seq, has_ended, place)
        ), page AS (
            SELECT f.place, f.seq, CASE WHEN f.has_ended
                THEN (SELECT job_view(as_job(d), NULL, d.state, d.finished_at) FROM done d WHERE d.seq = f.seq)
                ELSE (SELECT live_view(_now, j, h) FROM job j
                      LEFT JOIN LATERAL (SELECT * FROM owned_job x WHERE x.seq = j.seq OFFSET 0) h ON true
                      WHERE j.seq = f.seq) END AS shown
            FROM found f WHERE f.place <= _limit
        )
        SELECT jsonb_build_object(
            'jobs', coalesce((SELECT jsonb_agg(p.shown ORDER BY p.place) FROM page p), '[]'),
            'next', CASE WHEN (SELECT count(*) FROM found) > _limit
                THEN (SELECT p.seq FROM page p ORDER BY p.place DESC LIMIT 1) END));
END $$;

CREATE OR REPLACE FUNCTION limits_of(_ref text) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'operator', (SELECT l.operator FROM limits l WHERE l.ref = _ref),
        'config', (SELECT l.config FROM limits l WHERE l.ref = _ref),
        'config_app', (SELECT l.config_app FROM limits l WHERE l.ref = _ref),
        'code', coalesce((SELECT jsonb_agg(jsonb_build_object('task', c.task, 'limit', c.slots, 'app', c.app) ORDER BY c.n)
            FROM code_limit c WHERE c.grp = _ref), '[]'),
        'submit', (SELECT b.slots FROM submit_limit b WHERE b.ref = _ref ORDER BY b.n DESC LIMIT 1))
$$;

-- Slots that all live jobs of a reference would take at once, and those of programs.
CREATE OR REPLACE FUNCTION live_in(_now bigint, _gone bigint[], _ref text) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE _name text := split_part(_ref, '/', 1); _jobs bigint; _extras bigint := 0; _programs bigint;
BEGIN
    IF _ref = 'cluster' THEN
        SELECT count(*) INTO _jobs FROM job j WHERE j.seq NOT IN (SELECT unnest(_gone));
    ELSIF _ref LIKE 'queue:%' THEN
        SELECT count(*) INTO _jobs FROM job j WHERE j.queue = substr(_ref, 7) AND j.seq NOT IN (SELECT unnest(_gone));
    ELSIF _ref = every_key(_ref) THEN
        SELECT sum(j.cost) INTO _jobs FROM job j WHERE j.grp = _name AND j.key IS NOT NULL AND j.seq NOT IN (SELECT unnest(_gone));
        SELECT sum(e.slots) INTO _extras FROM extra_limit e
            WHERE e.ref > _name || '/' AND e.ref < _name || '0' AND e.seq NOT IN (SELECT unnest(_gone));
    ELSE
        SELECT sum(j.cost) INTO _jobs FROM job j WHERE j.grp = _name AND j.seq NOT IN (SELECT unnest(_gone))
            AND (strpos(_ref, '/') = 0 OR j.key = substr(_ref, strpos(_ref, '/') + 1));
        SELECT sum(e.slots) INTO _extras FROM extra_limit e WHERE e.ref = _ref AND e.seq NOT IN (SELECT unnest(_gone));
    END IF;
    SELECT sum(slots_of(p, _ref)) INTO _programs FROM program p WHERE p.until > _now;
    RETURN coalesce(_jobs, 0) + coalesce(_extras, 0) + coalesce(_programs, 0);
END $$;

CREATE OR REPLACE FUNCTION group_status(_now bigint, _gone bigint[], _ref text, _used bigint) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE _force record; _sources jsonb := limits_of(_ref); _total record;
BEGIN
    SELECT f.slots, f.source INTO _force FROM (SELECT 1) one LEFT JOIN limit_and_source(_ref) f ON true;
    IF is_spent_at(_now, _gone, _ref) THEN
        _sources := _sources || '{"submit": null}';
        -- A submit-side limit counts only where no other source says anything.
        IF _force.source = 'submit' THEN SELECT NULL::integer AS slots, NULL::text AS source INTO _force; END IF;
    END IF;
    SELECT 0::bigint AS acquired, 0::bigint AS rejected INTO _total;
    -- A key has no total of its own.
    IF _force.slots IS NOT NULL AND (strpos(_ref, '/') = 0 OR _ref = every_key(_ref)) THEN SELECT * INTO _total FROM total_of(_ref); END IF;
    RETURN jsonb_build_object('group', _ref, 'limit', _force.slots, 'source', _force.source, 'sources', _sources, 'used', _used,
        'live', live_in(_now, _gone, _ref), 'acquired', _total.acquired, 'rejected', _total.rejected);
END $$;

-- Slots in use of every reference that has holders, GROUP/* too, in one pass for lists.
CREATE OR REPLACE FUNCTION all_used(_now bigint, _over bigint[]) RETURNS TABLE (ref text, slots bigint) LANGUAGE sql STABLE AS $$
    WITH held AS (
        SELECT n.ref, n.slots FROM owned_job h
            CROSS JOIN LATERAL (SELECT x.grp, x.key, x.cost, x.limits, x.queue FROM job x WHERE x.seq = h.seq OFFSET 0) j
            CROSS JOIN LATERAL needs(j.grp, j.key, j.cost, j.limits, j.queue) n
            WHERE h.state = 'running' AND h.seq NOT IN (SELECT unnest(_over))
        UNION ALL SELECT n.ref, n.slots FROM program p, needs_of(p) n WHERE p.until > _now
    )
    SELECT h.ref, sum(h.slots) FROM held h GROUP BY h.ref
    UNION ALL SELECT every_key(h.ref), sum(h.slots) FROM held h WHERE strpos(h.ref, '/') > 0 GROUP BY every_key(h.ref)
$$;

-- Every reference that has live jobs, programs or a limit.
CREATE OR REPLACE FUNCTION known_refs(_now bigint, _gone bigint[]) RETURNS TABLE (ref text) LANGUAGE sql STABLE AS $$
    WITH live AS MATERIALIZED (
        SELECT j.seq, j.queue, j.grp, j.key FROM job j WHERE j.seq NOT IN (SELECT unnest(_gone)))
    SELECT l.ref FROM limits l
    UNION SELECT c.grp FROM code_limit c
    UNION SELECT b.ref FROM (SELECT DISTINCT s.ref FROM submit_limit s) b WHERE NOT is_spent_at(_now, _gone, b.ref)
    UNION SELECT 'cluster' WHERE EXISTS (SELECT FROM live)
    UNION SELECT DISTINCT 'queue:' || j.queue FROM live j
    UNION SELECT DISTINCT j.grp FROM live j
    UNION SELECT DISTINCT j.grp || '/' || j.key FROM live j WHERE j.key IS NOT NULL
    UNION SELECT DISTINCT e.ref FROM extra_limit e WHERE e.seq NOT IN (SELECT unnest(_gone))
    UNION SELECT DISTINCT n.ref FROM program p, needs_of(p) n WHERE p.until > _now
$$;

CREATE OR REPLACE FUNCTION api_groups(_after text, _limit integer) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE _now bigint := store_time(); _over bigint[]; _gone bigint[];
BEGIN
    SELECT * INTO _over, _gone FROM over_at(_now);
    RETURN (
        WITH found AS (
            SELECT r.ref, listing_order(r.ref) COLLATE "C" AS listed FROM known_refs(_now, _gone) r
            -- A client could not read a broken reference, nor ask for it. The jobs that name it are shown as
            -- unreadable.
            WHERE is_group(r.ref) AND (_after IS NULL OR listing_order(r.ref) COLLATE "C" > listing_order(_after) COLLATE "C") ORDER BY 2 LIMIT _limit + 1
        ), page AS MATERIALIZED (SELECT * FROM found ORDER BY listed LIMIT _limit
        ), used AS MATERIALIZED (SELECT * FROM all_used(_now, _over))
        SELECT jsonb_build_object(
            'groups', coalesce((SELECT jsonb_agg(group_status(_now, _gone, p.ref, coalesce(u.slots, 0)) ORDER BY p.listed)
                                FROM page p LEFT JOIN used u ON u.ref = p.ref), '[]'),
            'next', CASE WHEN (SELECT count(*) FROM found) > _limit
                    THEN (SELECT p.ref FROM page p ORDER BY p.listed DESC LIMIT 1) END));
END $$;

-- The holders of slots of a reference, the oldest token first.
CREATE OR REPLACE FUNCTION holders(_now bigint, _over bigint[], _ref text, _most integer) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_agg(h.holder ORDER BY h.token), '[]') FROM (
        SELECT a.* FROM (
            SELECT h.token, jsonb_build_object('token', h.token, 'slots', j.slots, 'worker', h.worker,
                'since', h.since, 'lease_until', least(h.until, s.lease_until),
                'by', jsonb_build_object('job', jsonb_build_object('job', j.id, 'task', j.task, 'session', h.session))) AS holder
            FROM owned_job h
            CROSS JOIN LATERAL (SELECT x.id, x.task, slots_of(x, _ref) AS slots FROM job x WHERE x.seq = h.seq OFFSET 0) j
            CROSS JOIN LATERAL (SELECT x.lease_until FROM session x WHERE x.session = h.session OFFSET 0) s
            WHERE h.state = 'running' AND h.seq NOT IN (SELECT unnest(_over)) AND j.slots > 0
            UNION ALL
            SELECT p.token, jsonb_build_object('token', p.token, 'slots', slots_of(p, _ref), 'worker', p.holder,
                'since', p.since, 'lease_until', p.until,
                'by', jsonb_build_object('program', jsonb_build_object('lease', p.lease)))
            FROM program p WHERE p.until > _now AND slots_of(p, _ref) > 0
        ) a ORDER BY a.token LIMIT _most
    ) h
$$;

CREATE OR REPLACE FUNCTION api_group(_ref text) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE _now bigint := store_time(); _over bigint[]; _gone bigint[]; _status jsonb;
BEGIN
    SELECT * INTO _over, _gone FROM over_at(_now);
    _status := group_status(_now, _gone, _ref, used_at(_now, _over, _ref));
    IF _status->>'limit' IS NULL AND (_status->>'live')::bigint = 0 THEN
        PERFORM refuse('not_found', _ref || ': has neither live jobs nor a limit');
    END IF;
    RETURN jsonb_build_object('status', _status, 'holders', holders(_now, _over, _ref, NULL));
END $$;

CREATE OR REPLACE FUNCTION api_queues() RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE _now bigint := store_time(); _over bigint[]; _gone bigint[];
BEGIN
    SELECT * INTO _over, _gone FROM over_at(_now);
    RETURN (SELECT coalesce(jsonb_agg(jsonb_build_object(
            'queue', n.queue, 'priority', queue_priority(n.queue), 'paused', is_paused(n.queue),
            'limit', limit_of('queue:' || n.queue),
            'running', coalesce(c.running, 0), 'claimed', coalesce(c.claimed, 0), 'due', coalesce(c.due, 0),
            'scheduled', coalesce(c.scheduled, 0), 'waiting', coalesce(c.waiting, 0),
            'oldest_due', c.oldest_due)
            ORDER BY n.queue COLLATE "C"), '[]')
        FROM (
            SELECT q.queue FROM queue q
            UNION SELECT substr(l.ref, 7) FROM limits l WHERE l.ref LIKE 'queue:%'
            UNION SELECT DISTINCT j.queue FROM job j WHERE j.seq NOT IN (SELECT unnest(_gone))
        ) n LEFT JOIN (
            SELECT j.queue, count(*) FILTER (WHERE e.state = 'running') AS running,
                   count(*) FILTER (WHERE e.state = 'claimed') AS claimed,
                   count(*) FILTER (WHERE e.state IS NULL AND t.is_next AND j.run_at <= _now) AS due,
                   count(*) FILTER (WHERE e.state IS NULL AND t.is_next AND j.run_at > _now) AS scheduled,
                   count(*) FILTER (WHERE e.state IS NULL AND NOT t.is_next) AS waiting,
                   min(j.run_at) FILTER (WHERE e.state IS NULL AND t.is_next AND j.run_at <= _now) AS oldest_due
            FROM job j LEFT JOIN LATERAL (SELECT x.seq, x.state FROM owned_job x WHERE x.seq = j.seq OFFSET 0) h ON true
            CROSS JOIN LATERAL (SELECT CASE WHEN h.seq IN (SELECT unnest(_over)) THEN NULL ELSE h.state END AS state) e
            CROSS JOIN LATERAL (SELECT j.workflow IS NULL OR is_next_at(_over, _gone, j.workflow, j.seq) AS is_next) t
            WHERE j.seq NOT IN (SELECT unnest(_gone)) GROUP BY j.queue
        ) c ON c.queue = n.queue);
END $$;

-- A session. With `_now`, its attempts and claims that are over by then are not counted.
CREATE OR REPLACE FUNCTION worker_view(_session session, _now bigint) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('worker', _session.worker, 'session', _session.session, 'queues', _session.queues,
        'tasks', _session.tasks, 'owner', _session.owner, 'permits', _session.permits, 'free_permits', _session.free_permits,
        'memory_percent', _session.memory_percent, 'saturated', _session.free_permits::bigint * 10 < _session.permits, 'draining', _session.draining,
        'opened_at', _session.opened_at, 'lease_until', _session.lease_until,
        'running', (SELECT count(*) FROM owned_job h WHERE h.session = _session.session AND h.state = 'running' AND NOT is_over(h.until, _now)),
        'claimed', (SELECT count(*) FROM owned_job h WHERE h.session = _session.session AND h.state = 'claimed' AND NOT is_over(h.until, _now)))
$$;

CREATE OR REPLACE FUNCTION api_workers() RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE _now bigint := store_time();
BEGIN
    RETURN (SELECT coalesce(jsonb_agg(worker_view(s, _now) ORDER BY s.worker, s.session), '[]') FROM session s WHERE s.lease_until > _now);
END $$;

-- What is over and has not been ended yet, of each kind the first {{PAGE}}.
CREATE OR REPLACE FUNCTION api_over() RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE _now bigint := store_time(); _sessions jsonb; _attempts jsonb; _programs jsonb;
BEGIN
    SELECT coalesce(jsonb_agg(worker_view(s.session, NULL) || jsonb_build_object('slots', (
            SELECT coalesce(sum(n.slots), 0) FROM owned_job h
            CROSS JOIN LATERAL (SELECT x.grp, x.key, x.cost, x.limits, x.queue FROM job x WHERE x.seq = h.seq OFFSET 0) j
            CROSS JOIN LATERAL needs(j.grp, j.key, j.cost, j.limits, j.queue) n
            WHERE h.session = s.id AND h.state = 'running' AND limit_of(n.ref) IS NOT NULL))
        ORDER BY s.lease_until, s.id), '[]')
    INTO _sessions FROM (
        SELECT o AS session, o.session AS id, o.lease_until FROM session o
        WHERE o.lease_until <= _now ORDER BY o.lease_until, o.session LIMIT {{PAGE}}) s;
    SELECT coalesce(jsonb_agg(l.lease ORDER BY l.until, l.token), '[]') INTO _attempts FROM (
        SELECT h.until, h.token, jsonb_build_object('group', n.ref, 'holder', jsonb_build_object('token', h.token,
            'slots', n.slots, 'worker', h.worker, 'since', h.since, 'lease_until', least(h.until, s.lease_until),
            'by', jsonb_build_object('job', jsonb_build_object('job', j.id, 'task', j.task, 'session', h.session)))) AS lease
        FROM owned_job h
        CROSS JOIN LATERAL (SELECT x.id, x.task, x.grp, x.key, x.cost, x.limits, x.queue FROM job x WHERE x.seq = h.seq OFFSET 0) j
        CROSS JOIN LATERAL (SELECT x.lease_until FROM session x WHERE x.session = h.session OFFSET 0) s
        CROSS JOIN LATERAL (SELECT m.ref, m.slots FROM needs(j.grp, j.key, j.cost, j.limits, j.queue) m ORDER BY m.place LIMIT 1) n
        WHERE h.until <= _now AND h.state = 'running' AND s.lease_until > _now ORDER BY h.until, h.token LIMIT {{PAGE}}) l;
    SELECT coalesce(jsonb_agg(l.lease ORDER BY l.until, l.token), '[]') INTO _programs FROM (
        SELECT p.until, p.token, jsonb_build_object('group', p.ref, 'holder', jsonb_build_object('token', p.token,
            'slots', p.slots, 'worker', p.holder, 'since', p.since, 'lease_until', p.until,
            'by', jsonb_build_object('program', jsonb_build_object('lease', p.lease)))) AS lease
        FROM program p WHERE p.until <= _now ORDER BY p.until, p.token LIMIT {{PAGE}}) l;
    RETURN jsonb_build_object('sessions', _sessions, 'leases', _attempts || _programs);
END $$;

-- The state of a step as views show it: pending, if its attempt or claim is over and it goes back into line.
CREATE OR REPLACE FUNCTION shown_step(_seq bigint, _state job_state) RETURNS job_state LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF _state NOT IN ('claimed', 'running') THEN RETURN _state; END IF;
    RETURN (SELECT shown_state(store_time(), j, h) FROM job j LEFT JOIN owned_job h USING (seq) WHERE j.seq = _seq);
END $$;

CREATE OR REPLACE FUNCTION workflow_status(_workflow workflow) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('workflow', _workflow.workflow,
        'state', CASE WHEN _workflow.cancelled THEN 'cancelled' WHEN h.seq IS NULL THEN 'finished'
            WHEN h.state IN ('pending', 'claimed', 'running') THEN 'active' ELSE 'halted' END,
        'on_failure', _workflow.on_failure, 'steps', _workflow.steps,
        'live', (SELECT count(*) FROM job j WHERE j.workflow = _workflow.workflow),
        'head', CASE WHEN h.seq IS NOT NULL THEN step_status(h.step, h.id, shown_step(h.seq, h.state)) END)
    FROM (SELECT 1) one LEFT JOIN head_of(_workflow.workflow) h ON true
$$;

CREATE OR REPLACE FUNCTION api_workflow(_name text) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE _status jsonb;
BEGIN
    SELECT workflow_status(w) INTO _status FROM workflow w WHERE w.workflow = _name;
    IF _status IS NULL THEN PERFORM refuse('not_found', 'workflow ' || _name); END IF;
    RETURN _status;
END $$;

CREATE OR REPLACE FUNCTION api_workflows(_after text, _limit integer) RETURNS jsonb LANGUAGE sql STABLE AS $$
    WITH found AS (
        SELECT w.* FROM workflow w WHERE is_name(w.workflow) AND (_after IS NULL OR w.workflow > _after) ORDER BY w.workflow LIMIT _limit + 1
    ), page AS (SELECT * FROM found ORDER BY workflow LIMIT _limit)
    SELECT jsonb_build_object(
        'workflows', coalesce((SELECT jsonb_agg(workflow_status((p.workflow, p.on_failure, p.cancelled, p.steps)::workflow) ORDER BY p.workflow) FROM page p), '[]'),
        'next', CASE WHEN (SELECT count(*) FROM found) > _limit THEN (SELECT max(p.workflow) FROM page p) END)
$$;

-- The position of a job in claim order, 1 for the first: among the jobs in line that take slots of a reference, or,
-- without one, among those of its queue and task.
CREATE OR REPLACE FUNCTION position_of(_now bigint, _over bigint[], _gone bigint[], _job job, _ref text) RETURNS integer
LANGUAGE plpgsql STABLE AS $$
DECLARE _ended boolean := cardinality(_over) + cardinality(_gone) > 0;
BEGIN
    RETURN (SELECT least(count(*) + 1, {{POSITION}}) FROM (
        SELECT 1 FROM (
            -- A step that was not next is parked on its workflow; with what is over ended it may be next.
            SELECT l.seq FROM line l WHERE l.run_at <= _now AND (coalesce(l.parked_on NOT LIKE '~%', true) OR _ended)
                AND l.seq NOT IN (SELECT unnest(_gone))
            UNION ALL SELECT o FROM unnest(_over) o WHERE o NOT IN (SELECT unnest(_gone))
        ) l CROSS JOIN LATERAL (SELECT * FROM job x WHERE x.seq = l.seq OFFSET 0) j
        WHERE j.run_at <= _now
          AND (queue_priority(j.queue), j.priority, j.run_at, j.seq)
            < (queue_priority(_job.queue), _job.priority, _job.run_at, _job.seq)
          AND CASE WHEN _ref IS NULL THEN j.queue = _job.queue AND j.task = _job.task ELSE slots_of(j::job, _ref) > 0 END
          AND (j.workflow IS NULL OR is_next_at(_over, _gone, j.workflow, j.seq))
        LIMIT {{POSITION}}) ahead);
END $$;

-- Why a pending job does not run.
CREATE OR REPLACE FUNCTION reasons(_now bigint, _over bigint[], _gone bigint[], _job job) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE
    _all jsonb := '[]'; _need record; _limit integer; _used bigint; _head record; _waits record; _big uuid;
    _serving bigint; _draining bigint; _saturated bigint; _place bigint[];
BEGIN
    IF _job.run_at > _now THEN
        _all := _all || jsonb_build_object('reason',
            CASE WHEN jsonb_array_length(_job.attempts) = 0 THEN 'scheduled_until' ELSE 'retry_at' END, 'run_at', _job.run_at);
    END IF;
    IF is_over(_job.good_until, _now) THEN
        _all := _all || jsonb_build_object('reason', 'expired', 'good_until', _job.good_until);
    END IF;
    IF is_paused(_job.queue) THEN
        _all := _all || jsonb_build_object('reason', 'queue_paused', 'queue', _job.queue);
    END IF;
    IF _job.workflow IS NOT NULL AND NOT is_next_at(_over, _gone, _job.workflow, _job.seq) THEN
        SELECT * INTO _head FROM head_at(_over, _gone, _job.workflow);
        IF _head.state NOT IN ('pending', 'claimed', 'running') THEN
            _all := _all || jsonb_build_object('reason', 'workflow_halted', 'workflow', _job.workflow,
                'halted_by', step_status(_head.step, _head.id, _head.state));
        ELSE
            SELECT * INTO _waits FROM other_running_step_at(_over, _job.workflow, _job.seq);
            IF NOT FOUND THEN _waits := _head; END IF;
            _all := _all || jsonb_build_object('reason', 'waiting_for_step', 'workflow', _job.workflow,
                'waits_for', step_status(_waits.step, _waits.id, _waits.state));
        END IF;
    END IF;
    _place := ARRAY[queue_priority(_job.queue), _job.priority, _job.run_at, _job.seq]::bigint[];
    FOR _need IN SELECT * FROM needs_of(_job) LOOP
        _limit := limit_of(_need.ref);
        CONTINUE WHEN _limit IS NULL;
        _used := used_at(_now, _over, _need.ref);
        IF _limit = 0 THEN
            _all := _all || jsonb_build_object('reason', 'held_by_limit_zero', 'group', _need.ref);
        ELSIF _need.slots > _limit THEN
            _all := _all || jsonb_build_object('reason', 'can_never_run', 'group', _need.ref, 'cost', _need.slots, 'limit', _limit);
        ELSIF _used + _need.slots > _limit THEN
            _all := _all || jsonb_build_object('reason', 'group_full', 'group', _need.ref, 'used', _used, 'limit', _limit,
                'cost', _need.slots, 'holders', holders(_now, _over, _need.ref, 10),
                'position', position_of(_now, _over, _gone, _job, _need.ref));
        ELSE
            _big := reserved_at(_now, _over, _gone, _need.ref, _need.slots, _place);
            IF _big IS NOT NULL THEN
                _all := _all || jsonb_build_object('reason', 'reserved_for', 'group', _need.ref, 'job', _big);
            END IF;
        END IF;
    END LOOP;
    SELECT count(*), count(*) FILTER (WHERE s.draining),
           count(*) FILTER (WHERE NOT s.draining AND s.free_permits::bigint * 10 < s.permits)
    INTO _serving, _draining, _saturated FROM session s WHERE s.lease_until > _now AND serves(s, _job.queue, _job.task);
    IF _serving = 0 THEN
        _all := _all || jsonb_build_object('reason', 'no_live_worker', 'queue', _job.queue, 'task', _job.task);
    ELSIF _serving = _draining + _saturated THEN
        _all := _all || jsonb_build_object('reason', 'workers_busy', 'saturated', _saturated, 'draining', _draining);
    END IF;
    IF _all = '[]' THEN
        _all := _all || jsonb_build_object('reason', 'only_waiting_for_claim', 'position', position_of(_now, _over, _gone, _job, NULL));
    END IF;
    RETURN _all;
END $$;

-- A job ends only when a command ends it, and its worker may settle it until then. So a job in `_gone` is shown as it
-- is.
CREATE OR REPLACE FUNCTION api_explain(_id uuid) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE _now bigint := store_time(); _over bigint[]; _gone bigint[]; _job job; _owned owned_job; _state job_state; _reasons jsonb := '[]';
BEGIN
    SELECT * INTO _job FROM job j WHERE j.id = _id;
    IF NOT FOUND THEN
        SELECT d.state INTO _state FROM done d WHERE d.id = _id;
        IF NOT FOUND THEN PERFORM refuse('not_found', 'job ' || _id); END IF;
        RETURN jsonb_build_object('job', _id, 'state', _state, 'reasons', '[]'::jsonb);
    END IF;
    SELECT * INTO _over, _gone FROM over_at(_now);
    SELECT * INTO _owned FROM owned_job h WHERE h.seq = _job.seq;
    IF _job.seq = ANY (_gone) THEN
        IF is_over(_job.good_until, _now) AND _owned.state IS DISTINCT FROM 'running' THEN
            _reasons := jsonb_build_array(jsonb_build_object('reason', 'expired', 'good_until', _job.good_until));
        END IF;
        RETURN jsonb_build_object('job', _id, 'state', coalesce(_owned.state, 'pending'), 'reasons', _reasons);
    END IF;
    IF _job.seq = ANY (_over) THEN
        -- The attempt that is over counts as made.
        IF _owned.state = 'running' THEN _job.attempts := _job.attempts || '[{}]'::jsonb; END IF;
        _owned := NULL;
    END IF;
    IF _owned.state = 'claimed' THEN
        _reasons := jsonb_build_array(jsonb_build_object('reason', 'claimed_by_prefetch', 'worker', _owned.worker,
            'session', _owned.session, 'claim_until', _owned.until));
    ELSIF _owned.state IS NULL THEN
        _reasons := reasons(_now, _over, _gone, _job);
    END IF;
    RETURN jsonb_build_object('job', _id, 'state', coalesce(_owned.state, 'pending'), 'reasons', _reasons);
END $$;

-- References whose count in `slots` differs from their holders'. An empty list if all is well.
CREATE OR REPLACE FUNCTION api_drift() RETURNS jsonb LANGUAGE sql STABLE AS $$
    WITH held AS (
        SELECT u.ref, sum(u.slots) AS slots FROM (
            SELECT n.ref, n.slots FROM owned_job h
                CROSS JOIN LATERAL (SELECT x.grp, x.key, x.cost, x.limits, x.queue FROM job x WHERE x.seq = h.seq OFFSET 0) j
                CROSS JOIN LATERAL needs(j.grp, j.key, j.cost, j.limits, j.queue) n
                WHERE h.state = 'running'
            UNION ALL SELECT n.ref, n.slots FROM program p, needs_of(p) n
        ) u GROUP BY u.ref
    ), cached AS (SELECT s.ref, sum(s.used) AS slots FROM slots s GROUP BY s.ref)
    SELECT coalesce(jsonb_agg(jsonb_build_object('group', coalesce(h.ref, c.ref), 'held', coalesce(h.slots, 0),
        'counted', coalesce(c.slots, 0)) ORDER BY coalesce(h.ref, c.ref) COLLATE "C"), '[]')
    FROM held h FULL JOIN cached c USING (ref)
    WHERE coalesce(h.slots, 0) <> coalesce(c.slots, 0)
      AND (limit_of(coalesce(h.ref, c.ref)) IS NOT NULL OR c.slots > 0)
      AND NOT EXISTS (SELECT FROM submit_limit b WHERE b.ref = coalesce(h.ref, c.ref) AND NOT b.counted)
$$;

CREATE OR REPLACE FUNCTION api_now() RETURNS jsonb LANGUAGE sql AS $$
    SELECT to_jsonb(store_time())
$$;

CREATE OR REPLACE FUNCTION api_version() RETURNS TABLE (version integer, oldest_client integer) LANGUAGE sql STABLE AS $$
    SELECT v.version, v.oldest_client FROM version v
$$;
