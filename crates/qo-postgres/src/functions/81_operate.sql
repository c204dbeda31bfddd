-- What registrations, configurations and operators say.

CREATE OR REPLACE FUNCTION api_register(_tasks jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _now bigint; _task jsonb; _name text; _grp text; _before text;
BEGIN
    PERFORM check_tasks(_tasks);
    _now := alone();
    PERFORM ring();
    FOR _task IN SELECT * FROM jsonb_array_elements(_tasks) LOOP
        _name := _task->>'task';
        _grp := coalesce(_task->>'group', _name);
        _before := NULL;
        DELETE FROM code_limit c WHERE c.task = _name RETURNING c.grp INTO _before;
        IF _task->>'limit' IS NOT NULL THEN
            INSERT INTO code_limit (task, grp, slots) VALUES (_name, _grp, (_task->>'limit')::integer);
        END IF;
        INSERT INTO task AS t (task, grp, options) VALUES (_name, _task->>'group', _task)
            ON CONFLICT (task) DO UPDATE SET grp = excluded.grp, options = excluded.options;
        IF _before IS NOT NULL THEN PERFORM recount(_before); END IF;
        PERFORM recount(_grp);
    END LOOP;
END $$;

-- Limits that nobody sets any more leave no row behind.
CREATE OR REPLACE FUNCTION drop_empty_limits() RETURNS void LANGUAGE sql AS $$
    DELETE FROM limits l WHERE l.operator IS NULL AND l.config IS NULL
$$;

-- `_next` has, by schedule, the first tick after now.
CREATE OR REPLACE FUNCTION api_configure(_configuration jsonb, _next jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _now bigint; _refs text[]; _ref text; _retention jsonb := coalesce(_configuration->'retention', '{}');
BEGIN
    PERFORM check_configuration(_configuration);
    _now := alone();
    PERFORM ring();
    SELECT array_agg(DISTINCT r) INTO _refs FROM (
        SELECT l.ref FROM limits l WHERE l.config IS NOT NULL
        UNION SELECT e.key FROM jsonb_each(coalesce(_configuration->'limits', '{}')) e) a (r);
    UPDATE limits l SET config = NULL WHERE l.config IS NOT NULL;
    INSERT INTO limits AS l (ref, config)
        SELECT e.key, e.value::integer FROM jsonb_each_text(coalesce(_configuration->'limits', '{}')) e
        ON CONFLICT (ref) DO UPDATE SET config = excluded.config;
    PERFORM drop_empty_limits();
    UPDATE queue q SET priority = NULL WHERE q.priority IS NOT NULL;
    INSERT INTO queue AS q (queue, priority)
        SELECT e.key, e.value::integer FROM jsonb_each_text(coalesce(_configuration->'queue_priorities', '{}')) e
        ON CONFLICT (queue) DO UPDATE SET priority = excluded.priority;
    DELETE FROM queue q WHERE q.priority IS NULL AND NOT q.paused;
    UPDATE retention r SET retain_ms = coalesce((_retention->>(r.state || '_ms'))::bigint,
        CASE r.state WHEN 'failed' THEN 1209600000 ELSE 86400000 END);
    DELETE FROM schedule s WHERE NOT coalesce(_configuration->'schedules', '{}') ? s.schedule;
    INSERT INTO schedule AS s (schedule, spec, next)
        SELECT e.key, e.value, (_next->>e.key)::bigint FROM jsonb_each(coalesce(_configuration->'schedules', '{}')) e
        ON CONFLICT (schedule) DO UPDATE SET
            spec = excluded.spec,
            next = CASE
                WHEN s.spec->>'cron' = excluded.spec->>'cron' AND s.spec->>'timezone' = excluded.spec->>'timezone'
                     AND s.next IS NOT NULL THEN s.next
                WHEN s.enabled THEN excluded.next END;
    FOREACH _ref IN ARRAY coalesce(_refs, '{}') LOOP PERFORM recount(_ref); END LOOP;
END $$;

CREATE OR REPLACE FUNCTION api_set_limit(_ref text, _slots integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM check_none(group_mistake('group', _ref), slots_mistake('limit', _slots, 0, {{LIMIT}}));
    PERFORM ring();
    PERFORM alone();
    INSERT INTO limits AS l (ref, operator) VALUES (_ref, _slots) ON CONFLICT (ref) DO UPDATE SET operator = excluded.operator;
    PERFORM recount(_ref);
END $$;

CREATE OR REPLACE FUNCTION api_unset_limit(_ref text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM ring();
    PERFORM alone();
    UPDATE limits l SET operator = NULL WHERE l.ref = _ref AND l.operator IS NOT NULL;
    IF NOT FOUND THEN PERFORM refuse('not_found', _ref || ': no operator has set a limit'); END IF;
    PERFORM drop_empty_limits();
    PERFORM recount(_ref);
END $$;

CREATE OR REPLACE FUNCTION api_pause_queue(_queue text, _paused boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM check_none(CASE WHEN NOT is_name(_queue) THEN invalid('queue', coalesce(_queue, ''), name_rule()) END,
        CASE WHEN _paused IS NULL THEN invalid('paused', 'null'::text, 'must be true or false') END);
    PERFORM ring();
    PERFORM alone();
    INSERT INTO queue AS q (queue, paused) VALUES (_queue, _paused) ON CONFLICT (queue) DO UPDATE SET paused = excluded.paused;
    DELETE FROM queue q WHERE q.queue = _queue AND q.priority IS NULL AND NOT q.paused;
END $$;

CREATE OR REPLACE FUNCTION api_release_slot(_ref text, _token bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _now bigint := alone(); _seq bigint;
BEGIN
    PERFORM ring();
    IF EXISTS (SELECT FROM program p WHERE p.token = _token AND slots_of(p, _ref) > 0) THEN
        PERFORM free_program(_token);
        RETURN;
    END IF;
    SELECT h.seq INTO _seq FROM hold h JOIN job j USING (seq)
        WHERE h.token = _token AND h.state = 'running' AND slots_of(j, _ref) > 0;
    IF NOT FOUND THEN PERFORM refuse('not_found', _ref || ': slot ' || _token || ' is not held'); END IF;
    PERFORM take_away(_now, _seq, 'released_by_operator', 'released by operator');
END $$;

-- `_step` is the step that is to be retried or skipped.
CREATE OR REPLACE FUNCTION api_steer_workflow(_name text, _steer text, _step integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _now bigint; _workflow workflow; _head record; _id uuid;
BEGIN
    PERFORM check_none(CASE WHEN coalesce(_steer NOT IN ('retry', 'skip', 'cancel'), true)
        THEN invalid('steer', coalesce(_steer, ''), 'must be retry, skip or cancel') END);
    PERFORM ring();
    -- A caller's open transaction may hold this row, because it submits to the workflow: wait for that before everybody
    -- else waits for us.
    PERFORM 1 FROM workflow w WHERE w.workflow = _name FOR UPDATE;
    _now := alone();
    SELECT * INTO _workflow FROM workflow w WHERE w.workflow = _name;
    IF NOT FOUND THEN PERFORM refuse('not_found', 'workflow ' || _name); END IF;
    IF _steer = 'cancel' THEN
        FOR _id IN SELECT j.id FROM job j WHERE j.workflow = _name ORDER BY j.step LOOP
            PERFORM cancel_one(_now, _id);
        END LOOP;
        UPDATE workflow w SET cancelled = true WHERE w.workflow = _name;
        PERFORM take_turns(_now, _name);
        RETURN;
    END IF;
    IF _steer = 'retry' AND EXISTS (SELECT FROM job j WHERE j.workflow = _name AND j.step = _step) THEN RETURN; END IF;
    IF _steer = 'skip' AND EXISTS (SELECT FROM done d WHERE d.workflow = _name AND d.step = _step AND d.skipped) THEN RETURN; END IF;
    SELECT * INTO _head FROM head_of(_name);
    IF _head.step IS DISTINCT FROM _step OR _head.state IN ('pending', 'claimed', 'running') THEN
        PERFORM refuse('conflict', 'step ' || _step || ' does not halt workflow ' || _name);
    END IF;
    IF _steer = 'retry' THEN
        PERFORM reopen(_now, _head.seq);
    ELSE
        UPDATE done d SET skipped = true WHERE d.seq = _head.seq;
        PERFORM take_turns(_now, _name);
    END IF;
END $$;

-- Whether a job is one of those that a filter names.
CREATE OR REPLACE FUNCTION matches(
    _filter jsonb, _state job_state, _queue text, _task text, _grp text, _key text, _workflow text
) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT (jsonb_array_length(coalesce(_filter->'states', '[]')) = 0 OR _filter->'states' ? _state::text)
       AND coalesce(_filter->>'queue' = _queue, true) AND coalesce(_filter->>'task' = _task, true)
       AND coalesce(_filter->>'group' = _grp, true)
       AND (_filter->>'key' IS NULL OR coalesce(_filter->>'key' = _key, false))
       AND (_filter->>'workflow' IS NULL OR coalesce(_filter->>'workflow' = _workflow, false))
$$;

-- The first job after a place that matches and can be changed.
CREATE OR REPLACE FUNCTION next_changeable(_change text, _filter jsonb, _after bigint)
RETURNS TABLE (seq bigint, id uuid) LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF _change = 'cancel' THEN
        RETURN QUERY SELECT j.seq, j.id FROM job j LEFT JOIN hold h USING (seq)
            WHERE j.seq > _after AND NOT coalesce(h.cancel, false)
              AND matches(_filter, coalesce(h.state, 'pending'), j.queue, j.task, j.grp, j.key, j.workflow)
            ORDER BY j.seq LIMIT 1;
    ELSE
        RETURN QUERY SELECT d.seq, d.id FROM done d
            WHERE d.seq > _after AND can_be_reopened(d)
              AND matches(_filter, d.state, d.queue, d.task, d.grp, d.key, d.workflow)
            ORDER BY d.seq LIMIT 1;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION api_change_matching(_change text, _filter jsonb, _after bigint, _limit integer) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE _now bigint; _n integer := 0; _last bigint := coalesce(_after, 0); _found record;
BEGIN
    PERFORM check_none(CASE WHEN coalesce(_change NOT IN ('cancel', 'retry'), true)
        THEN invalid('change', coalesce(_change, ''), 'must be cancel or retry') END, slots_mistake('limit', _limit, 1, {{PAGE}}));
    _now := alone();
    PERFORM ring();
    LOOP
        SELECT * INTO _found FROM next_changeable(_change, _filter, _last);
        EXIT WHEN NOT FOUND;
        IF _n = _limit THEN RETURN jsonb_build_object('jobs', _n, 'next', _last); END IF;
        IF _change = 'cancel' THEN PERFORM cancel_one(_now, _found.id); ELSE PERFORM reopen(_now, _found.seq); END IF;
        _n := _n + 1;
        _last := _found.seq;
    END LOOP;
    RETURN jsonb_build_object('jobs', _n, 'next', NULL);
END $$;

CREATE OR REPLACE FUNCTION slot_lease(_program program) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object('token', _program.token, 'since', _program.since, 'lease_until', _program.until)
$$;

CREATE OR REPLACE FUNCTION api_acquire_slots(_request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    _now bigint; _id uuid; _ref text := _request->>'group'; _slots integer; _own integer;
    _program program; _need record; _limit integer; _n bigint;
BEGIN
    PERFORM check_slot_request(_request);
    _now := alone();
    _id := (_request->>'id')::uuid;
    _slots := coalesce((_request->>'slots')::integer, 1);
    _own := (_request->>'limit')::integer;
    SELECT * INTO _program FROM program p WHERE p.lease = _id AND p.until > _now;
    IF FOUND THEN
        IF _program.ref = _ref AND _program.slots = _slots THEN RETURN slot_lease(_program); END IF;
        PERFORM refuse('conflict', 'lease ' || _id || ' holds ' || _program.slots || ' of ' || _program.ref);
    END IF;
    _program.ref := _ref;
    _program.slots := _slots;
    FOR _need IN SELECT * FROM needs_of(_program) LOOP
        _limit := limit_with(_need.ref, CASE WHEN _need.ref = _ref THEN _own END);
        IF _limit > 0 AND _slots > _limit THEN
            PERFORM refuse('invalid', invalid('slots', _slots, 'must be at most ' || _limit || ', the limit of ' || _need.ref));
        END IF;
    END LOOP;
    PERFORM end_what_is_over(_now);
    IF _own IS NOT NULL THEN
        INSERT INTO submit_limit (ref, slots, counted) VALUES (_ref, _own, true) RETURNING n INTO _n;
        PERFORM recount(_ref);
    END IF;
    FOR _need IN SELECT * FROM needs_of(_program) LOOP
        IF NOT has_room(_need.ref, _need.slots, false)
            OR EXISTS (SELECT FROM reserved_for(_now, _need.ref, _need.slots, ARRAY[9223372036854775807], false)) THEN
            IF _own IS NOT NULL THEN
                DELETE FROM submit_limit b WHERE b.ref = _ref AND b.n = _n;
                PERFORM recount(_ref);
            END IF;
            RETURN NULL;
        END IF;
    END LOOP;
    IF _own IS NOT NULL THEN DELETE FROM submit_limit b WHERE b.ref = _ref AND b.n < _n; END IF;
    INSERT INTO program (lease, ref, slots, holder, token, since, until)
        VALUES (_id, _ref, _slots, _request->>'holder', next_token(false), _now, _now + (_request->>'lease_ms')::bigint)
        RETURNING * INTO _program;
    PERFORM count_slots(n.ref, n.slots) FROM needs_of(_program) n;
    RETURN slot_lease(_program);
END $$;

CREATE OR REPLACE FUNCTION api_extend_slots(_lease uuid, _token bigint, _lease_ms bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE _now bigint; _program program;
BEGIN
    PERFORM check_none(slots_mistake('lease_ms', _lease_ms, {{LEASE_MIN_MS}}, {{LEASE_MAX_MS}}));
    _now := alone();
    UPDATE program p SET until = _now + _lease_ms WHERE p.lease = _lease AND p.token = _token RETURNING * INTO _program;
    IF NOT FOUND THEN PERFORM refuse('fenced', 'token ' || _token || ' does not hold lease ' || _lease); END IF;
    RETURN slot_lease(_program);
END $$;

CREATE OR REPLACE FUNCTION api_return_slots(_lease uuid, _token bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _now bigint := alone();
BEGIN
    PERFORM ring();
    IF NOT EXISTS (SELECT FROM program p WHERE p.lease = _lease AND p.token = _token) THEN
        PERFORM refuse('fenced', 'token ' || _token || ' does not hold lease ' || _lease);
    END IF;
    PERFORM free_program(_token);
END $$;

CREATE OR REPLACE FUNCTION schedule_status(_schedule schedule) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object('schedule', _schedule.schedule, 'spec', _schedule.spec, 'enabled', _schedule.enabled,
        'next', _schedule.next, 'last', _schedule.last, 'last_job', _schedule.last_job)
$$;

CREATE OR REPLACE FUNCTION api_schedules() RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_agg(schedule_status(s) ORDER BY s.schedule), '[]') FROM schedule s
$$;

CREATE OR REPLACE FUNCTION api_schedule(_name text) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE _status jsonb;
BEGIN
    SELECT schedule_status(s) INTO _status FROM schedule s WHERE s.schedule = _name;
    IF _status IS NULL THEN PERFORM refuse('not_found', 'schedule ' || _name); END IF;
    RETURN _status;
END $$;

-- `_next` is the first tick after now of the schedule, if its expression and time zone are still `_cron` and `_timezone`;
-- if they are not, the answer is false, and nothing has happened.
CREATE OR REPLACE FUNCTION api_enable_schedule(_name text, _enabled boolean, _next bigint, _cron text, _timezone text)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE _now bigint := alone(); _row schedule;
BEGIN
    SELECT * INTO _row FROM schedule s WHERE s.schedule = _name;
    IF NOT FOUND THEN PERFORM refuse('not_found', 'schedule ' || _name); END IF;
    IF (_row.spec->>'cron', _row.spec->>'timezone') IS DISTINCT FROM (_cron, _timezone) THEN RETURN false; END IF;
    UPDATE schedule s SET enabled = _enabled, next = CASE WHEN _enabled THEN _next END
        WHERE s.schedule = _name AND s.enabled <> _enabled;
    RETURN true;
END $$;

CREATE OR REPLACE FUNCTION api_keep_log(_token bigint, _log bytea) RETURNS void LANGUAGE sql AS $$
    INSERT INTO attempt_log AS a VALUES (_token, _log) ON CONFLICT (token) DO UPDATE SET log = excluded.log
$$;

CREATE OR REPLACE FUNCTION api_log(_token bigint) RETURNS bytea LANGUAGE sql STABLE AS $$
    SELECT a.log FROM attempt_log a WHERE a.token = _token
$$;
