-- Registrations, configurations, and what operators do. All of these run alone, except views and `api_keep_log`.

-- A registration as text, for the list of pushes.
CREATE OR REPLACE FUNCTION task_text(_task jsonb) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT concat_ws(' ', 'group=' || coalesce(_task->>'group', _task->>'task'), 'max_concurrent=' || (_task->>'max_concurrent'),
        'timeout_ms=' || (_task->>'timeout_ms'),
        'retry=' || (_task#>>'{retry,base_ms}') || '/' || (_task#>>'{retry,factor_percent}') || '/'
                 || (_task#>>'{retry,max_ms}') || '/' || (_task#>>'{retry,jitter_percent}'))
$$;

-- A value of a configuration as text, for the list of pushes.
CREATE OR REPLACE FUNCTION setting_text(_setting text, _value jsonb) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN _setting = 'schedule'
        THEN left((_value->>'cron') || ' ' || (_value->>'timezone') || ' ' || (_value->>'task'), {{PUSH_TEXT_CHARS}})
        ELSE _value #>> '{}' END
$$;

-- What a push changed of one setting. Without `old` it was added, without `new` removed.
CREATE OR REPLACE FUNCTION setting_change(_setting text, _name text, _old text, _new text) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_strip_nulls(jsonb_build_object('setting', _setting, 'name', _name, 'old', _old, 'new', _new))
$$;

-- Remembers a push that changed something: the last {{PUSHES}} pushes, of each {{PUSH_CHANGES}} changes. Changes of one
-- app at one moment are one push, unless another app pushed in between.
CREATE OR REPLACE FUNCTION remember_push(_now bigint, _app text, _changes jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _last push; _all jsonb := _changes; _listed jsonb; _unlisted bigint;
BEGIN
    IF jsonb_array_length(_changes) = 0 THEN RETURN; END IF;
    SELECT * INTO _last FROM push p ORDER BY p.n DESC LIMIT 1;
    IF _last.pushed_at = _now AND _last.app = _app THEN _all := _last.changes || _changes; END IF;
    SELECT jsonb_agg(c.value ORDER BY c.ordinality) INTO _listed
        FROM jsonb_array_elements(_all) WITH ORDINALITY c WHERE c.ordinality <= {{PUSH_CHANGES}};
    _unlisted := greatest(jsonb_array_length(_all) - {{PUSH_CHANGES}}, 0);
    IF _last.pushed_at = _now AND _last.app = _app THEN
        UPDATE push p SET changes = _listed, unlisted = p.unlisted + _unlisted WHERE p.n = _last.n;
    ELSE
        INSERT INTO push (pushed_at, app, changes, unlisted) VALUES (_now, _app, _listed, _unlisted);
        DELETE FROM push p WHERE p.n <= (SELECT o.n FROM push o ORDER BY o.n DESC OFFSET {{PUSHES}} LIMIT 1);
    END IF;
END $$;

-- Refuses an app beyond the first {{APPS}}.
CREATE OR REPLACE FUNCTION refuse_app(_field text, _app text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM refuse('invalid', invalid(_field, _app, 'must be one of at most {{APPS}} apps of the namespace'));
END $$;

-- Returns what the registration changed. If an app registers a task as before, nothing changes, not even which app is
-- the newest.
CREATE OR REPLACE FUNCTION api_register(_tasks jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    _now bigint; _task jsonb; _name text; _grp text; _app text; _before text; _old jsonb;
    _n integer := 0; _change jsonb; _changes jsonb[] := '{}'; _unsaid jsonb[] := '{}'; _of text;
BEGIN
    PERFORM check_tasks(_tasks);
    _now := lock_namespace();
    FOR _task IN SELECT * FROM jsonb_array_elements(_tasks) LOOP
        _name := _task->>'task';
        _app := coalesce(_task->>'app', '{{DEFAULT_APP}}');
        IF NOT EXISTS (SELECT FROM registration r WHERE r.task = _name AND r.app = _app)
            AND (SELECT count(*) FROM registration r WHERE r.task = _name) >= {{APPS}} THEN
            PERFORM refuse_app('tasks[' || _n || '].app', _app);
        END IF;
        _n := _n + 1;
    END LOOP;
    FOR _task IN SELECT * FROM jsonb_array_elements(_tasks) LOOP
        _name := _task->>'task';
        _grp := coalesce(_task->>'group', _name);
        _app := coalesce(_task->>'app', '{{DEFAULT_APP}}');
        _old := NULL;
        SELECT r.options INTO _old FROM registration r WHERE r.task = _name AND r.app = _app;
        CONTINUE WHEN _old - 'app' = _task - 'app';
        _before := NULL;
        DELETE FROM code_limit c WHERE c.task = _name AND c.app = _app RETURNING c.grp INTO _before;
        IF _task->>'max_concurrent' IS NOT NULL THEN
            INSERT INTO code_limit (task, app, grp, slots) VALUES (_name, _app, _grp, (_task->>'max_concurrent')::integer);
        END IF;
        INSERT INTO registration AS r (task, app, options) VALUES (_name, _app, _task)
            ON CONFLICT (task, app) DO UPDATE SET options = excluded.options;
        INSERT INTO task AS t (task, grp, options) VALUES (_name, _task->>'group', _task)
            ON CONFLICT (task) DO UPDATE SET grp = excluded.grp, options = excluded.options;
        IF _before IS NOT NULL THEN PERFORM recount(_before); END IF;
        PERFORM recount(_grp);
        _change := setting_change('task', _name, CASE WHEN _old IS NOT NULL THEN task_text(_old) END, task_text(_task));
        _changes := _changes || _change;
        IF _of <> _app THEN
            PERFORM remember_push(_now, _of, to_jsonb(_unsaid));
            _unsaid := '{}';
        END IF;
        _of := _app;
        _unsaid := _unsaid || _change;
    END LOOP;
    IF cardinality(_changes) > 0 THEN
        PERFORM remember_push(_now, _of, to_jsonb(_unsaid));
        PERFORM notify_listeners();
    END IF;
    RETURN jsonb_build_object('changes', to_jsonb(_changes));
END $$;

-- Deletes rows of limits that neither an operator nor a configuration sets.
CREATE OR REPLACE FUNCTION drop_empty_limits() RETURNS void LANGUAGE sql AS $$
    DELETE FROM limits l WHERE l.operator IS NULL AND l.config IS NULL
$$;

-- The settings of a configuration, one row each.
CREATE OR REPLACE FUNCTION settings_of(_configuration jsonb) RETURNS TABLE (setting text, name text, value jsonb)
LANGUAGE sql STABLE AS $$
    SELECT 'limit', e.key, e.value FROM jsonb_each(coalesce(_configuration->'limits', '{}')) e
    UNION ALL SELECT 'queue_priority', e.key, e.value FROM jsonb_each(coalesce(_configuration->'queue_priorities', '{}')) e
    UNION ALL SELECT 'schedule', e.key, e.value FROM jsonb_each(coalesce(_configuration->'schedules', '{}')) e
    UNION ALL SELECT 'retention', left(e.key, -3), e.value FROM jsonb_each(coalesce(_configuration->'retention', '{}')) e
        WHERE jsonb_typeof(e.value) <> 'null'
$$;

-- A setting as the newest app that names it has it.
CREATE OR REPLACE FUNCTION newest_setting(_setting text, _name text) RETURNS TABLE (value jsonb, app text) LANGUAGE sql STABLE AS $$
    SELECT s.value, s.app FROM app_setting s JOIN app a USING (app)
        WHERE s.setting = _setting AND s.name = _name ORDER BY a.n DESC LIMIT 1
$$;

-- Replaces the configuration of an app, and returns what that changed. `_next` has, for each schedule that the app
-- names or named, a cron expression, its time zone and its first tick after now. If a schedule counts with another
-- expression meanwhile, the answer is NULL, and nothing is changed. A configuration as before changes nothing.
CREATE OR REPLACE FUNCTION api_configure(_configuration jsonb, _next jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    _now bigint; _app text := coalesce(_configuration->>'app', '{{DEFAULT_APP}}'); _changes jsonb;
    _refs text[]; _queues text[]; _schedules text[]; _name text; _newest record; _spec jsonb; _before integer;
BEGIN
    PERFORM check_configuration(_configuration);
    PERFORM check_none(object_mistake('next', _next));
    IF EXISTS (SELECT FROM jsonb_each(_next) e WHERE jsonb_typeof(e.value) <> 'object') THEN
        PERFORM refuse('conflict', 'this process is of an older release than the schema, and has to be replaced: its schedules are not stored');
    END IF;
    _now := lock_namespace();
    SELECT coalesce(jsonb_agg(
            setting_change(d.setting, d.name, setting_text(d.setting, d.old), setting_text(d.setting, d.new))
            ORDER BY array_position(ARRAY['limit', 'queue_priority', 'schedule', 'retention'], d.setting), d.name COLLATE "C"), '[]')
        INTO _changes FROM (
            SELECT coalesce(n.setting, o.setting) AS setting, coalesce(n.name, o.name) AS name, o.value AS old, n.value AS new
            FROM (SELECT * FROM app_setting s WHERE s.app = _app) o
            FULL JOIN settings_of(_configuration) n ON n.setting = o.setting AND n.name = o.name
            WHERE o.value::text IS DISTINCT FROM n.value::text) d;
    IF _changes = '[]' THEN
        -- A schedule that had stopped runs again if this release finds a tick.
        UPDATE schedule s SET next = (_next->s.schedule->>'next')::bigint WHERE s.enabled AND s.next IS NULL
            AND _next->s.schedule->>'cron' = s.spec->>'cron' AND _next->s.schedule->>'timezone' = s.spec->>'timezone';
        RETURN jsonb_build_object('changes', _changes);
    END IF;
    IF NOT EXISTS (SELECT FROM app a WHERE a.app = _app) AND (SELECT count(*) FROM app) >= {{APPS}} THEN
        PERFORM refuse_app('app', _app);
    END IF;
    SELECT array_agg(t.name) FILTER (WHERE t.setting = 'limit'), array_agg(t.name) FILTER (WHERE t.setting = 'queue_priority'),
            array_agg(t.name) FILTER (WHERE t.setting = 'schedule') INTO _refs, _queues, _schedules
        FROM (SELECT s.setting, s.name FROM app_setting s WHERE s.app = _app
              UNION SELECT n.setting, n.name FROM settings_of(_configuration) n) t;
    FOREACH _name IN ARRAY coalesce(_schedules, '{}') LOOP
        _spec := coalesce(_configuration->'schedules'->_name, (
            SELECT s.value FROM app_setting s JOIN app a USING (app)
            WHERE s.setting = 'schedule' AND s.name = _name AND s.app <> _app ORDER BY a.n DESC LIMIT 1));
        IF _spec IS NOT NULL AND (_next->_name->>'cron', _next->_name->>'timezone')
                IS DISTINCT FROM (_spec->>'cron', _spec->>'timezone') THEN
            RETURN NULL;
        END IF;
    END LOOP;
    PERFORM notify_listeners();
    DELETE FROM app_setting s WHERE s.app = _app;
    INSERT INTO app_setting SELECT _app, n.setting, n.name, n.value FROM settings_of(_configuration) n;
    DELETE FROM app a WHERE a.app = _app;
    INSERT INTO app SELECT _app, (SELECT coalesce(max(a.n), 0) + 1 FROM app a)
        WHERE EXISTS (SELECT FROM app_setting s WHERE s.app = _app);
    UPDATE retention r SET retain_ms = coalesce((SELECT (n.value #>> '{}')::bigint FROM newest_setting('retention', r.state::text) n),
        CASE r.state WHEN 'failed' THEN {{RETAIN_FAILED_MS}} ELSE {{RETAIN_MS}} END);
    FOREACH _name IN ARRAY coalesce(_queues, '{}') LOOP
        INSERT INTO queue AS q (queue, priority)
            VALUES (_name, (SELECT (n.value #>> '{}')::integer FROM newest_setting('queue_priority', _name) n))
            ON CONFLICT (queue) DO UPDATE SET priority = excluded.priority;
    END LOOP;
    DELETE FROM queue q WHERE q.priority IS NULL AND NOT q.paused;
    FOREACH _name IN ARRAY coalesce(_schedules, '{}') LOOP
        SELECT * INTO _newest FROM newest_setting('schedule', _name);
        IF NOT FOUND THEN
            DELETE FROM schedule s WHERE s.schedule = _name;
            CONTINUE;
        END IF;
        INSERT INTO schedule AS s (schedule, spec, next) VALUES (_name, _newest.value, (_next->_name->>'next')::bigint)
            ON CONFLICT (schedule) DO UPDATE SET
                spec = excluded.spec,
                next = CASE
                    WHEN s.spec->>'cron' = excluded.spec->>'cron' AND s.spec->>'timezone' = excluded.spec->>'timezone'
                         AND s.next IS NOT NULL THEN s.next
                    WHEN s.enabled THEN excluded.next END;
    END LOOP;
    FOREACH _name IN ARRAY coalesce(_refs, '{}') LOOP
        SELECT * INTO _newest FROM newest_setting('limit', _name);
        SELECT l.config INTO _before FROM limits l WHERE l.ref = _name;
        INSERT INTO limits AS l (ref, config, config_app) VALUES (_name, (_newest.value #>> '{}')::integer, _newest.app)
            ON CONFLICT (ref) DO UPDATE SET config = excluded.config, config_app = excluded.config_app;
        IF _before IS DISTINCT FROM (_newest.value #>> '{}')::integer THEN PERFORM recount(_name); END IF;
    END LOOP;
    PERFORM drop_empty_limits();
    PERFORM remember_push(_now, _app, _changes);
    RETURN jsonb_build_object('changes', _changes);
END $$;

CREATE OR REPLACE FUNCTION said_by(_app text, _setting text, _suffix text) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_object_agg(s.name || _suffix, s.value), '{}') FROM app_setting s
        WHERE s.app = _app AND s.setting = _setting
$$;

CREATE OR REPLACE FUNCTION api_configurations() RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_object('app', a.app, 'limits', said_by(a.app, 'limit', ''),
        'queue_priorities', said_by(a.app, 'queue_priority', ''), 'schedules', said_by(a.app, 'schedule', ''),
        'retention', said_by(a.app, 'retention', '_ms')) ORDER BY a.n), '[]') FROM app a
$$;

CREATE OR REPLACE FUNCTION api_pushes() RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_object('at', p.pushed_at, 'app', p.app, 'changes', p.changes,
        'unlisted', p.unlisted) ORDER BY p.n DESC), '[]') FROM push p
$$;

CREATE OR REPLACE FUNCTION api_set_limit(_ref text, _slots integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM check_none(group_mistake('group', _ref), slots_mistake('limit', _slots, 0, {{LIMIT}}));
    PERFORM notify_listeners();
    PERFORM lock_namespace();
    INSERT INTO limits AS l (ref, operator) VALUES (_ref, _slots) ON CONFLICT (ref) DO UPDATE SET operator = excluded.operator;
    PERFORM recount(_ref);
END $$;

CREATE OR REPLACE FUNCTION api_unset_limit(_ref text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM notify_listeners();
    PERFORM lock_namespace();
    UPDATE limits l SET operator = NULL WHERE l.ref = _ref AND l.operator IS NOT NULL;
    IF NOT FOUND THEN PERFORM refuse('not_found', _ref || ': no operator has set a limit'); END IF;
    PERFORM drop_empty_limits();
    PERFORM recount(_ref);
END $$;

CREATE OR REPLACE FUNCTION api_pause_queue(_queue text, _paused boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM check_none(CASE WHEN NOT is_name(_queue) THEN invalid('queue', coalesce(_queue, ''), name_rule()) END,
        CASE WHEN _paused IS NULL THEN invalid('paused', 'null'::text, 'must be true or false') END);
    PERFORM notify_listeners();
    PERFORM lock_namespace();
    INSERT INTO queue AS q (queue, paused) VALUES (_queue, _paused) ON CONFLICT (queue) DO UPDATE SET paused = excluded.paused;
    DELETE FROM queue q WHERE q.queue = _queue AND q.priority IS NULL AND NOT q.paused;
END $$;

CREATE OR REPLACE FUNCTION api_release_slot(_ref text, _token bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _now bigint := lock_namespace(); _seq bigint;
BEGIN
    PERFORM notify_listeners();
    IF EXISTS (SELECT FROM program p WHERE p.token = _token AND slots_of(p, _ref) > 0) THEN
        PERFORM free_program(_token);
        RETURN;
    END IF;
    SELECT h.seq INTO _seq FROM owned_job h
        WHERE h.token = _token AND h.state = 'running' AND (SELECT slots_of(j, _ref) FROM job j WHERE j.seq = h.seq) > 0;
    IF NOT FOUND THEN PERFORM refuse('not_found', _ref || ': slot ' || _token || ' is not held'); END IF;
    PERFORM take_away(_now, _seq, 'released_by_operator', 'released by operator');
END $$;

-- Retries or skips a step (`_step`), or cancels the workflow.
CREATE OR REPLACE FUNCTION api_steer_workflow(_name text, _steer text, _step integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _now bigint; _workflow workflow; _head record; _id uuid;
BEGIN
    PERFORM check_none(CASE WHEN coalesce(_steer NOT IN ('retry', 'skip', 'cancel'), true)
        THEN invalid('steer', coalesce(_steer, ''), 'must be retry, skip or cancel') END);
    PERFORM notify_listeners();
    -- A caller's open transaction may have locked this row, because it submits to the workflow. Wait for it before
    -- taking the namespace lock, which all exchanges would wait for.
    PERFORM 1 FROM workflow w WHERE w.workflow = _name FOR UPDATE;
    _now := lock_namespace();
    SELECT * INTO _workflow FROM workflow w WHERE w.workflow = _name;
    IF NOT FOUND THEN PERFORM refuse('not_found', 'workflow ' || _name); END IF;
    IF _steer = 'cancel' THEN
        FOR _id IN SELECT j.id FROM job j WHERE j.workflow = _name ORDER BY j.step LOOP
            PERFORM cancel_one(_now, _id);
        END LOOP;
        UPDATE workflow w SET cancelled = true WHERE w.workflow = _name;
        PERFORM put_next_in_line(_now, _name);
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
        PERFORM put_next_in_line(_now, _name);
    END IF;
END $$;

-- Whether a job matches a filter.
CREATE OR REPLACE FUNCTION matches(
    _filter jsonb, _state job_state, _id uuid, _submitted_at bigint, _queue text, _task text, _grp text, _key text, _workflow text
) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT (jsonb_array_length(coalesce(_filter->'states', '[]')) = 0 OR _filter->'states' ? _state::text)
       AND coalesce(_filter->>'queue' = _queue, true) AND coalesce(_filter->>'task' = _task, true)
       AND coalesce(_filter->>'group' = _grp, true)
       AND (_filter->>'key' IS NULL OR coalesce(_filter->>'key' = _key, false))
       AND (_filter->>'workflow' IS NULL OR coalesce(_filter->>'workflow' = _workflow, false))
       AND coalesce((_filter->>'submitted_from')::bigint <= _submitted_at, true)
       AND coalesce(_submitted_at < (_filter->>'submitted_before')::bigint, true)
       AND coalesce(starts_with(replace(_id::text, '-', ''), lower(replace(_filter->>'id_prefix', '-', ''))), true)
$$;

-- The first jobs after a number that match a filter and can be changed.
CREATE OR REPLACE FUNCTION changeable(_now bigint, _change text, _filter jsonb, _after bigint, _most integer)
RETURNS TABLE (seq bigint, id uuid) LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF _change = 'cancel' THEN
        RETURN QUERY SELECT j.seq, j.id FROM job j
            LEFT JOIN LATERAL (SELECT x.state, x.cancel FROM owned_job x WHERE x.seq = j.seq OFFSET 0) h ON true
            WHERE j.seq > _after AND NOT coalesce(h.cancel, false)
              AND matches(_filter, coalesce(h.state, 'pending'), j.id, j.submitted_at, j.queue, j.task, j.grp, j.key, j.workflow)
            ORDER BY j.seq LIMIT _most;
    ELSE
        RETURN QUERY SELECT f.seq, f.id FROM (
            (SELECT d.seq, d.id FROM done d
                WHERE d.seq > _after AND can_be_reopened(d)
                  AND matches(_filter, d.state, d.id, d.submitted_at, d.queue, d.task, d.grp, d.key, d.workflow)
                ORDER BY d.seq LIMIT _most)
            UNION ALL
            -- Only jobs that wait for a date, not the whole backlog: every exchange waits meanwhile.
            (SELECT j.seq, j.id FROM (
                    SELECT l.seq FROM line l WHERE l.parked_on = '@' AND l.run_at > _now ORDER BY l.run_at OFFSET 0) w
                CROSS JOIN LATERAL (SELECT * FROM job x WHERE x.seq = w.seq OFFSET 0) j
                WHERE j.seq > _after AND waits_for_attempt(_now, j)
                  AND matches(_filter, 'pending', j.id, j.submitted_at, j.queue, j.task, j.grp, j.key, j.workflow)
                ORDER BY j.seq LIMIT _most)
        ) f ORDER BY f.seq LIMIT _most;
    END IF;
END $$;

-- All jobs of the page are found before the first is changed: a change has no effect on which others can be changed.
CREATE OR REPLACE FUNCTION api_change_matching(_change text, _filter jsonb, _after bigint, _limit integer) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE _now bigint; _n integer := 0; _last bigint; _found record;
BEGIN
    PERFORM check_none(CASE WHEN coalesce(_change NOT IN ('cancel', 'retry'), true)
        THEN invalid('change', coalesce(_change, ''), 'must be cancel or retry') END, slots_mistake('limit', _limit, 1, {{PAGE}}),
        filter_mistake(_filter), CASE WHEN (_filter->>'newest_first')::boolean
            THEN invalid('filter.newest_first', true, 'must not be set: a bulk change goes by the order of acceptance') END);
    _now := lock_namespace();
    PERFORM notify_listeners();
    FOR _found IN SELECT * FROM changeable(_now, _change, _filter, coalesce(_after, 0), _limit + 1) LOOP
        IF _n = _limit THEN RETURN jsonb_build_object('jobs', _n, 'next', _last); END IF;
        IF _change = 'cancel' THEN PERFORM cancel_one(_now, _found.id); ELSE PERFORM retry_one(_now, _found.id); END IF;
        _n := _n + 1;
        _last := _found.seq;
    END LOOP;
    RETURN jsonb_build_object('jobs', _n, 'next', NULL);
END $$;

CREATE OR REPLACE FUNCTION slot_lease(_program program) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object('token', _program.token, 'since', _program.since, 'lease_until', _program.until)
$$;

-- The group for which a request for slots gets none, as far as that can be told without the lock: nothing is over, whose end might
-- free some, the request is valid and new, and a group of it is full. One statement calls this, so all of it is read at
-- one moment.
CREATE OR REPLACE FUNCTION refused_by(_now bigint, _lease uuid, _program program, _submit_limit integer) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE _need record; _limit integer; _is_full boolean := false; _full text;
BEGIN
    IF EXISTS (SELECT FROM program p WHERE p.lease = _lease) OR EXISTS (SELECT FROM submit_limit b WHERE NOT b.counted)
        OR is_anything_over(_now, NULL) THEN
        RETURN NULL;
    END IF;
    FOR _need IN SELECT * FROM needs_of(_program) LOOP
        _limit := limit_with(_need.ref, CASE WHEN _need.ref = _program.ref THEN _submit_limit END);
        IF _limit > 0 AND _program.slots > _limit THEN RETURN NULL; END IF;
        IF _need.slots > _limit - used(_need.ref) THEN
            _is_full := true;
            _full := coalesce(_full, _need.ref);
        ELSIF EXISTS (SELECT FROM reserved_for(_now, _need.ref, _need.slots, ARRAY[9223372036854775807], false)) THEN
            -- A narrower group has room, which is kept for a big job.
            _full := coalesce(_full, _need.ref);
        END IF;
    END LOOP;
    RETURN CASE WHEN _is_full THEN _full END;
END $$;

CREATE OR REPLACE FUNCTION api_acquire_slots(_request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    _now bigint; _id uuid; _ref text := _request->>'group'; _slots integer; _submit_limit integer;
    _program program; _need record; _limit integer; _n bigint; _full text;
BEGIN
    PERFORM check_slot_request(_request);
    _id := (_request->>'id')::uuid;
    _slots := coalesce((_request->>'slots')::integer, 1);
    _submit_limit := (_request->>'limit')::integer;
    _program.ref := _ref;
    _program.slots := _slots;
    -- A program that waits asks often, and every exchange would wait for the lock.
    PERFORM check_isolation();
    _full := refused_by(store_time(), _id, _program, _submit_limit);
    IF _full IS NOT NULL THEN
        -- A total is not worth a wait for the disk.
        PERFORM set_config('synchronous_commit', 'off', true);
        PERFORM count_refusal(_full);
        RETURN NULL;
    END IF;
    _now := lock_namespace();
    SELECT * INTO _program FROM program p WHERE p.lease = _id AND p.until > _now;
    IF FOUND THEN
        IF _program.ref = _ref AND _program.slots = _slots THEN RETURN slot_lease(_program); END IF;
        PERFORM refuse('conflict', 'lease ' || _id || ' holds ' || _program.slots || ' of ' || _program.ref);
    END IF;
    _program.ref := _ref;
    _program.slots := _slots;
    FOR _need IN SELECT * FROM needs_of(_program) LOOP
        _limit := limit_with(_need.ref, CASE WHEN _need.ref = _ref THEN _submit_limit END);
        IF _limit > 0 AND _slots > _limit THEN
            PERFORM refuse('invalid', invalid('slots', _slots, 'must be at most ' || _limit || ', the limit of ' || _need.ref));
        END IF;
    END LOOP;
    PERFORM end_what_is_over(_now);
    IF _submit_limit IS NOT NULL THEN
        INSERT INTO submit_limit (ref, slots, counted) VALUES (_ref, _submit_limit, true) RETURNING n INTO _n;
        PERFORM recount(_ref);
    END IF;
    FOR _need IN SELECT * FROM needs_of(_program) LOOP
        IF NOT has_room(_need.ref, _need.slots, false)
            OR EXISTS (SELECT FROM reserved_for(_now, _need.ref, _need.slots, ARRAY[9223372036854775807], false)) THEN
            IF _submit_limit IS NOT NULL THEN
                DELETE FROM submit_limit b WHERE b.ref = _ref AND b.n = _n;
                PERFORM recount(_ref);
            END IF;
            PERFORM count_refusal(_need.ref);
            RETURN NULL;
        END IF;
    END LOOP;
    IF _submit_limit IS NOT NULL THEN DELETE FROM submit_limit b WHERE b.ref = _ref AND b.n < _n; END IF;
    INSERT INTO program (lease, ref, slots, holder, token, since, until)
        VALUES (_id, _ref, _slots, _request->>'holder', next_token(false), _now, _now + (_request->>'lease_ms')::bigint)
        RETURNING * INTO _program;
    PERFORM count_slots(n.ref, n.slots) FROM needs_of(_program) n;
    PERFORM count_grant(ARRAY(SELECT n.ref FROM needs_of(_program) n));
    RETURN slot_lease(_program);
END $$;

CREATE OR REPLACE FUNCTION api_extend_slots(_lease uuid, _token bigint, _lease_ms bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE _now bigint; _program program;
BEGIN
    PERFORM check_none(slots_mistake('lease_ms', _lease_ms, {{LEASE_MIN_MS}}, {{LEASE_MAX_MS}}));
    _now := lock_namespace();
    UPDATE program p SET until = _now + _lease_ms WHERE p.lease = _lease AND p.token = _token RETURNING * INTO _program;
    IF NOT FOUND THEN PERFORM refuse('fenced', 'token ' || _token || ' does not hold lease ' || _lease); END IF;
    RETURN slot_lease(_program);
END $$;

CREATE OR REPLACE FUNCTION api_return_slots(_lease uuid, _token bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _now bigint := lock_namespace();
BEGIN
    PERFORM notify_listeners();
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

-- `_next` is the schedule's first tick after now, if its expression and time zone are still `_cron` and `_timezone`; if
-- they are not, the answer is false, and nothing is changed.
CREATE OR REPLACE FUNCTION api_enable_schedule(_name text, _enabled boolean, _next bigint, _cron text, _timezone text)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE _now bigint := lock_namespace(); _row schedule;
BEGIN
    SELECT * INTO _row FROM schedule s WHERE s.schedule = _name;
    IF NOT FOUND THEN PERFORM refuse('not_found', 'schedule ' || _name); END IF;
    IF (_row.spec->>'cron', _row.spec->>'timezone') IS DISTINCT FROM (_cron, _timezone) THEN RETURN false; END IF;
    UPDATE schedule s SET enabled = _enabled, next = CASE WHEN _enabled THEN _next END
        WHERE s.schedule = _name AND s.enabled <> _enabled;
    RETURN true;
END $$;

-- Keeps the log of an attempt. A token that was never drawn is refused. To check that a token still belongs to a
-- remembered job would take an index that every claim writes, so a log that comes after its job was forgotten is kept.
CREATE OR REPLACE FUNCTION api_keep_log(_token bigint, _log bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM check_none(CASE WHEN coalesce(octet_length(_log) > {{LOG_BYTES}}, true)
            THEN invalid('log', coalesce(octet_length(_log), 0) || ' bytes', 'must be 0 to {{LOG_BYTES}} bytes') END,
        CASE WHEN coalesce(NOT EXISTS (SELECT FROM fence_token f WHERE f.is_called AND _token BETWEEN 1 AND f.last_value), true)
            THEN invalid('token', coalesce(_token::text, 'null'), 'must be the fence token of an attempt') END);
    INSERT INTO attempt_log AS a VALUES (_token, _log) ON CONFLICT (token) DO UPDATE SET log = excluded.log WHERE a.log <> excluded.log;
END $$;

CREATE OR REPLACE FUNCTION api_log(_token bigint) RETURNS bytea LANGUAGE sql STABLE AS $$
    SELECT a.log FROM attempt_log a WHERE a.token = _token
$$;
