-- Sessions, and the exchange that runs alone.
--
-- 1. Check the exchange and its settles, before the namespace lock is taken.
-- 2. Take the lock exclusively (`lock_namespace`).
-- 3. If the session has had this number before, answer with the recorded reply.
-- 4. If schedules are due and the call does not say what they fire, answer with them; nothing is changed.
-- 5. Settle, start claimed jobs, record progress, renew the lease.
-- 6. End what is over; fire schedules.
-- 7. Claim (50_claim.sql), then claim ahead of time.
-- 8. Record the reply under the number.
--
-- Invariant: an exchange is answered once; its number always gets the same reply.

CREATE OR REPLACE FUNCTION api_open_session(_new jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE _now bigint; _id uuid; _session session;
BEGIN
    PERFORM check_session(_new);
    _now := lock_namespace();
    _id := (_new->>'id')::uuid;
    IF EXISTS (SELECT FROM ended_session e WHERE e.session = _id) THEN
        PERFORM refuse('fenced', 'session ' || _id || ' has ended');
    END IF;
    INSERT INTO session (session, worker, queues, tasks, lease_ms, permits, opened_at, lease_until, free_permits, owner)
    VALUES (_id, _new->>'worker',
        ARRAY(SELECT jsonb_array_elements_text(coalesce(_new->'queues', '[]'))),
        ARRAY(SELECT jsonb_array_elements_text(_new->'tasks')),
        (_new->>'lease_ms')::bigint, (_new->>'permits')::integer, _now, _now + (_new->>'lease_ms')::bigint,
        (_new->>'permits')::integer, _new->>'owner')
    ON CONFLICT (session) DO NOTHING;
    SELECT * INTO _session FROM session s WHERE s.session = _id;
    IF _session.owner IS DISTINCT FROM _new->>'owner' THEN
        PERFORM refuse('conflict', 'session ' || _id || ': another token opened it');
    END IF;
    RETURN jsonb_build_object('now', _session.opened_at, 'lease_until', _session.lease_until);
END $$;

CREATE OR REPLACE FUNCTION api_close_session(_id uuid) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _now bigint := lock_namespace();
BEGIN
    IF EXISTS (SELECT FROM session s WHERE s.session = _id) THEN
        PERFORM end_session(_now, _id, 'session closed');
        PERFORM notify_listeners();
    END IF;
END $$;

-- An exchange with its settles checked: one that breaks a rule of its own is marked, and refused alone. This happens
-- before the namespace lock is taken, because checking a large output takes long.
CREATE OR REPLACE FUNCTION with_checked_settles(_exchange jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE _settle jsonb; _mistake text; _settles jsonb[] := '{}'; _bad boolean := false;
BEGIN
    FOR _settle IN SELECT * FROM jsonb_array_elements(coalesce(nullif(_exchange->'settles', 'null'), '[]')) LOOP
        _mistake := CASE WHEN NOT _settle ? 'invalid' THEN outcome_mistake(_settle->'outcome') END;
        IF _mistake IS NOT NULL THEN
            _bad := true;
            _settle := (_settle - 'outcome')
                || jsonb_build_object('invalid', jsonb_build_object('kind', 'invalid', 'message', _mistake));
        END IF;
        _settles := _settles || _settle;
    END LOOP;
    RETURN CASE WHEN _bad THEN _exchange || jsonb_build_object('settles', to_jsonb(_settles)) ELSE _exchange END;
END $$;

-- One settle of an exchange, checked before.
CREATE OR REPLACE FUNCTION settle_one(_now bigint, _session uuid, _settle jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    _id uuid := (_settle->>'job')::uuid; _token bigint := token_in(_settle);
    _said jsonb := _settle->'outcome'; _outcome text; _detail jsonb; _owned owned_job; _attempts jsonb; _attempt jsonb;
BEGIN
    IF _settle ? 'invalid' THEN RETURN jsonb_build_object('Err', _settle->'invalid'); END IF;
    _outcome := CASE WHEN jsonb_typeof(_said) = 'string' THEN _said #>> '{}'
                     ELSE (SELECT k FROM jsonb_object_keys(_said) k LIMIT 1) END;
    _detail := CASE WHEN jsonb_typeof(_said) = 'object' THEN _said->_outcome END;
    SELECT * INTO _owned FROM owned_job h WHERE h.seq = (SELECT j.seq FROM job j WHERE j.id = _id);
    IF FOUND AND _owned.session = _session AND _owned.token = _token THEN
        IF _owned.state = 'claimed' THEN
            IF _outcome <> 'release' THEN
                RETURN failure('invalid', invalid('outcome', _outcome, 'a job that has not started can only be released'));
            END IF;
            RETURN success(give_back(_now, _owned.seq));
        END IF;
        RETURN success(end_attempt(_now, _owned.seq,
            CASE _outcome WHEN 'succeed' THEN 'succeeded' WHEN 'retry' THEN 'retried' WHEN 'fail' THEN 'failed'
                WHEN 'snooze' THEN 'snoozed' WHEN 'release' THEN 'released' ELSE 'cancelled' END,
            left_bytes(_detail->>'error', {{ERROR_BYTES}}), _detail->>'output', _now + (_detail->>'delay_ms')::bigint));
    END IF;
    -- A token that has settled the job before gets the recorded state again.
    SELECT j.attempts INTO _attempts FROM job j WHERE j.id = _id;
    IF NOT FOUND THEN SELECT attempts_of(d) INTO _attempts FROM done d WHERE d.id = _id; END IF;
    SELECT a INTO _attempt FROM jsonb_array_elements(_attempts) WITH ORDINALITY e (a, n)
        WHERE (a->>'token')::bigint = _token ORDER BY n DESC LIMIT 1;
    IF _attempt->>'outcome' NOT IN ('lease_ended', 'timed_out', 'released_by_operator') THEN
        RETURN jsonb_build_object('Ok', _attempt->'then');
    END IF;
    RETURN failure('fenced', 'token ' || _token || ' does not own job ' || _id);
END $$;

-- Fails jobs that their worker cannot read, each with the attempt that it was claimed for; the others that were claimed
-- with them run. Nothing happens to a job that the token no longer owns, so the worker may repeat the call.
CREATE OR REPLACE FUNCTION api_fail_unreadable(_session uuid, _ids uuid[], _tokens bigint[], _errors text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE _now bigint; _bad record; _said text; _owned owned_job; _job job;
BEGIN
    PERFORM check_none(slots_mistake('jobs', cardinality(_ids), 0, {{CLAIM}}),
        CASE WHEN (cardinality(_tokens), cardinality(_errors)) IS DISTINCT FROM (cardinality(_ids), cardinality(_ids))
            THEN invalid('tokens', cardinality(_tokens), 'must be as many as jobs, and so must errors') END);
    _now := lock_namespace();
    PERFORM notify_listeners();
    FOR _bad IN SELECT * FROM unnest(_ids, _tokens, _errors) b (id, token, error) LOOP
        SELECT * INTO _owned FROM owned_job h
            WHERE h.seq = (SELECT j.seq FROM job j WHERE j.id = _bad.id) AND h.session = _session AND h.token = _bad.token;
        CONTINUE WHEN NOT FOUND;
        _said := left_bytes(_bad.error, {{ERROR_BYTES}});
        IF _owned.state = 'running' THEN
            PERFORM end_attempt(_now, _owned.seq, 'failed', _said, NULL, NULL);
            CONTINUE;
        END IF;
        SELECT * INTO STRICT _job FROM job j WHERE j.seq = _owned.seq;
        DELETE FROM stop s WHERE s.session = _session AND s.token = _bad.token;
        PERFORM forget_first_log(_job.attempts);
        PERFORM finish(_now, _owned.seq, 'failed', NULL, _job.attempts_used + 1, with_attempt(_job.attempts, _job.attempts_used,
            _owned.token, _owned.worker, _owned.session, _owned.since, _now, 'failed', _said, 'failed'));
    END LOOP;
END $$;

-- One start of an exchange.
CREATE OR REPLACE FUNCTION start_one(_now bigint, _session session, _start jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    _id uuid := (_start->>'job')::uuid; _claim bigint := token_in(_start);
    _job job; _owned owned_job; _may boolean; _token bigint; _place bigint[];
BEGIN
    SELECT * INTO _job FROM job j WHERE j.id = _id;
    SELECT * INTO _owned FROM owned_job h WHERE h.seq = _job.seq AND h.state = 'claimed'
        AND h.session = _session.session AND h.token = _claim;
    IF NOT FOUND THEN
        RETURN failure('fenced', 'token ' || _claim || ' has not claimed job ' || _id);
    END IF;
    _place := ARRAY[queue_priority(_job.queue), _job.priority, _job.run_at, _job.seq]::bigint[];
    _may := NOT is_over(_job.good_until, _now) AND NOT is_paused(_job.queue) AND is_next(_job.workflow, _job.seq)
        AND NOT EXISTS (SELECT FROM needs_of(_job) n WHERE NOT has_room(n.ref, n.slots, false))
        AND NOT EXISTS (SELECT FROM needs_of(_job) n CROSS JOIN LATERAL reserved_for(_now, n.ref, n.slots, _place, false) r);
    IF NOT _may THEN
        RETURN success(jsonb_build_object('then', give_back(_now, _job.seq), 'run', NULL));
    END IF;
    _token := start_job(_now, _job, _session.session, _session.worker, false);
    RETURN success(jsonb_build_object('then', 'running', 'run', jsonb_build_object(
        'token', _token, 'timeout_ms', timeout_of(_job), 'retry', retry_of(_job))));
END $$;

-- Schedules that are due, for the client, which computes their ticks; NULL if there are none.
CREATE OR REPLACE FUNCTION due_schedules(_now bigint) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('due', jsonb_agg(schedule_status(s) ORDER BY s.next, s.schedule), 'now', _now)
    FROM schedule s WHERE s.next <= _now AND coalesce(s.put_off_until, _now) <= _now HAVING count(*) > 0
$$;

-- Submits the job of a tick and answers as a submit does; NULL if an open transaction has its idempotency key. The
-- caller runs alone, so every exchange waits for it, and that transaction may stay open for hours: it waits 20 ms.
CREATE OR REPLACE FUNCTION submit_tick(_now bigint, _job jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE _answer jsonb; _mistake text; _patience text := current_setting('lock_timeout');
BEGIN
    IF NOT is_uuid(_job->>'id') OR NOT EXISTS (SELECT FROM earlier((_job->>'id')::uuid, _job->>'idempotency_key')) THEN
        _mistake := coalesce(mistake_of(_job, false), mistake_in(_job));
    END IF;
    IF _mistake IS NOT NULL THEN RETURN failure('invalid', 'jobs[0].' || _mistake); END IF;
    BEGIN
        PERFORM set_config('lock_timeout', '20ms', true);
        _answer := submit_one(_now, _job, true);
        PERFORM set_config('lock_timeout', _patience, true);
    EXCEPTION WHEN lock_not_available THEN
        -- The failed block has also restored the setting.
        RETURN NULL;
    END;
    PERFORM count_new_limits();
    RETURN _answer;
END $$;

-- Fires schedules, each with the jobs of its ticks and its next tick, as the client has computed them from `from`. A
-- schedule that another call has fired since is left as it is. One that the client cannot compute is `refused` and
-- stops: a schedule that stays due would make every exchange run alone. Returns how many jobs were accepted.
CREATE OR REPLACE FUNCTION fire(_now bigint, _fires jsonb) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE _fire jsonb; _tick jsonb; _row schedule; _answer jsonb; _outcome jsonb; _accepted bigint := 0; _busy boolean;
    _next bigint; _put_off bigint;
BEGIN
    FOR _fire IN SELECT * FROM jsonb_array_elements(coalesce(_fires, '[]')) LOOP
        SELECT * INTO _row FROM schedule s WHERE s.schedule = _fire->>'schedule' AND s.next = (_fire->>'from')::bigint;
        CONTINUE WHEN NOT FOUND OR _row.next > _now OR _row.put_off_until > _now;
        IF _fire->>'refused' IS NOT NULL THEN
            UPDATE schedule s SET next = NULL, put_off_until = NULL, last = jsonb_build_object('tick', s.next, 'outcome',
                jsonb_build_object('refused', left_bytes(_fire->>'refused', {{ERROR_BYTES}}))) WHERE s.schedule = _row.schedule;
            CONTINUE;
        END IF;
        _next := (_fire->>'next')::bigint;
        _put_off := NULL;
        FOR _tick IN SELECT * FROM jsonb_array_elements(_fire->'ticks') LOOP
            SELECT s.last_job IS NOT NULL AND (_fire->>'alone')::boolean
                AND EXISTS (SELECT FROM job j WHERE j.id = s.last_job)
            INTO _busy FROM schedule s WHERE s.schedule = _row.schedule;
            IF _busy THEN
                _outcome := '"skipped"';
            ELSE
                _answer := submit_tick(_now, _tick->'job');
                IF _answer IS NULL THEN
                    -- Try this tick, and those after it, again later.
                    _next := (_tick->>'tick')::bigint;
                    _put_off := _now + 5000;
                    EXIT;
                END IF;
                _outcome := CASE
                    WHEN _answer ? 'Err' THEN jsonb_build_object('refused',
                        replace(_answer->'Err'->>'kind', '_', ' ') || ': ' || (_answer->'Err'->>'message'))
                    WHEN _answer->'Ok'->>'outcome' = 'skipped' THEN '"skipped"'
                    ELSE jsonb_build_object(_answer->'Ok'->>'outcome', _answer->'Ok'->'job') END;
            END IF;
            _accepted := _accepted + (_outcome ? 'accepted' AND jsonb_typeof(_outcome) = 'object')::integer;
            UPDATE schedule s SET last = jsonb_build_object('tick', _tick->'tick', 'outcome', _outcome),
                last_job = CASE WHEN jsonb_typeof(_outcome) = 'object'
                    THEN coalesce((_outcome->>'accepted')::uuid, (_outcome->>'existing')::uuid, s.last_job) ELSE s.last_job END
                WHERE s.schedule = _row.schedule;
        END LOOP;
        UPDATE schedule s SET next = _next, put_off_until = _put_off WHERE s.schedule = _row.schedule;
    END LOOP;
    RETURN _accepted;
END $$;

-- The last reply of a session. Of an exchange beside others it is built from columns.
CREATE OR REPLACE FUNCTION recorded_reply(_session session) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce(_session.reply, jsonb_build_object('number', _session.number,
        'settled', (SELECT coalesce(jsonb_agg(CASE WHEN r LIKE '{%' THEN r::jsonb ELSE jsonb_build_object('Ok', r) END ORDER BY n), '[]')
                    FROM unnest(coalesce(_session.reply_settled, array_fill('succeeded'::text, ARRAY[_session.reply_succeeded]))) WITH ORDINALITY s (r, n)),
        'started', '[]'::jsonb, 'prefetched', '[]'::jsonb, 'stop', '[]'::jsonb,
        'claimed', (SELECT coalesce(jsonb_agg(jsonb_build_object('id', j.id, 'token', c.token, 'attempt', coalesce(c.attempt, 1),
                'max_attempts', j.max_attempts, 'queue', j.queue, 'task', j.task, 'group', j.grp, 'key', j.key,
                'payload', j.payload, 'timeout_ms', _session.reply_timeouts[c.n], 'retry', coalesce(_session.reply_retries[c.n], '{}'),
                'traceparent', j.traceparent, 'due_at', _session.reply_dues[c.n])
                ORDER BY c.n), '[]')
            FROM unnest(_session.reply_seqs, _session.reply_tokens, _session.reply_attempts) WITH ORDINALITY c (seq, token, attempt, n)
            JOIN LATERAL (
                SELECT l.id, l.max_attempts, l.queue, l.task, l.grp, l.key, l.payload, l.traceparent FROM job l WHERE l.seq = c.seq
                UNION ALL
                SELECT d.id, d.max_attempts, d.queue, d.task, d.grp, d.key, d.payload, d.traceparent FROM done d WHERE d.seq = c.seq
            ) j ON true),
        'now', _session.reply_now, 'lease_until', _session.reply_now + _session.lease_ms))
$$;

-- The exchange. A trial is rolled back by its caller and draws no fence tokens.
CREATE OR REPLACE FUNCTION exchange_alone(_exchange jsonb, _fires jsonb, _trial boolean) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    _now bigint; _id uuid; _number bigint;
    _session session; _settled jsonb[] := '{}'; _started jsonb[] := '{}'; _item jsonb; _due jsonb;
    _draining boolean := coalesce((_exchange->>'draining')::boolean, false);
    _claim jsonb := _exchange->'claim'; _prefetch jsonb; _owned owned_job; _late boolean; _held integer;
    _given jsonb[] := '{}'; _ahead jsonb[] := '{}'; _prefetched jsonb := '[]'; _queues text[] := '{}'; _bytes bigint := 0; _n integer;
    _stops jsonb; _reply jsonb; _over jsonb; _fired bigint; _idle bigint;
BEGIN
    PERFORM check_exchange(_exchange);
    _exchange := with_checked_settles(_exchange);
    _now := lock_namespace();
    _id := (_exchange->>'session')::uuid;
    _number := (_exchange->>'number')::bigint;
    SELECT * INTO _session FROM session s WHERE s.session = _id;
    IF NOT FOUND THEN PERFORM refuse('fenced', 'session ' || _id || ' has ended or never was'); END IF;
    IF _number = _session.number AND _number > 0 THEN RETURN recorded_reply(_session); END IF;
    IF _number <= _session.number THEN
        PERFORM refuse('conflict', 'number: ' || _number || ': exchange ' || _session.number || ' has been answered since');
    END IF;
    IF _number > _session.number + 1 THEN
        PERFORM refuse('invalid', invalid('number', _number, 'must be ' || _session.number + 1
            || ': exchanges are numbered one by one'));
    END IF;
    _due := due_schedules(_now);
    IF _due IS NOT NULL AND _fires IS NULL THEN RETURN _due; END IF;

    FOR _item IN SELECT * FROM jsonb_array_elements(coalesce(_exchange->'settles', '[]')) LOOP
        _settled := _settled || settle_one(_now, _id, _item);
    END LOOP;
    FOR _item IN SELECT * FROM jsonb_array_elements(coalesce(_exchange->'starts', '[]')) LOOP
        _started := _started || start_one(_now, _session, _item);
    END LOOP;
    -- Of several reports on a job the last one counts.
    FOR _item IN SELECT DISTINCT ON (e.a->>'job', e.a->>'token') e.a
        FROM jsonb_array_elements(coalesce(_exchange->'progress', '[]')) WITH ORDINALITY e (a, n)
        ORDER BY e.a->>'job', e.a->>'token', e.n DESC
    LOOP
        UPDATE owned_job h SET progress = jsonb_build_object('percent', _item->'percent', 'note', coalesce(_item->'note', '""'), 'at', _now)
        FROM job j WHERE j.id = (_item->>'job')::uuid AND h.seq = j.seq AND h.state = 'running'
            AND h.session = _id AND h.token = token_in(_item)
            AND (h.progress->'percent', h.progress->'note') IS DISTINCT FROM (_item->'percent', coalesce(_item->'note', '""'));
    END LOOP;
    _idle := CASE WHEN NOT EXISTS (SELECT FROM owned_job h WHERE h.session = _id) THEN (_exchange->>'idle_ms')::bigint END;
    UPDATE session s SET lease_until = _now + coalesce(_idle, s.lease_ms), free_permits = (_exchange->>'free_permits')::integer,
        memory_percent = (_exchange->>'memory_percent')::integer, draining = _draining WHERE s.session = _id RETURNING * INTO _session;
    IF _draining THEN
        FOR _owned IN SELECT * FROM owned_job h WHERE h.session = _id AND h.state = 'claimed' ORDER BY h.token LOOP
            PERFORM give_back(_now, _owned.seq);
        END LOOP;
    END IF;
    -- A session that did not start claimed jobs in time gets none ahead of time now, so that another worker can take
    -- them.
    _late := EXISTS (SELECT FROM owned_job h WHERE h.session = _id AND h.state = 'claimed' AND h.until <= _now);
    _over := end_what_is_over(_now);
    _fired := fire(_now, _fires);
    IF cardinality(_settled) + cardinality(_started) + _fired > 0 OR _draining OR ended_anything(_over) THEN PERFORM notify_listeners(); END IF;

    SELECT w._given, w._queues, w._bytes INTO _given, _queues, _bytes
        FROM walk(_now, _session, coalesce((_claim->>'max')::integer, 0), (_claim->>'max_claim_batch')::integer, false, NULL,
                  _trial, _given, _queues, _bytes) w;
    _prefetch := nullif(_claim->'prefetch', 'null');
    IF _prefetch IS NOT NULL AND NOT _late THEN
        SELECT count(*) INTO _held FROM owned_job h WHERE h.session = _id AND h.state = 'claimed';
        SELECT w._given INTO _ahead
            FROM walk(_now, _session, (_prefetch->>'buffer')::integer - _held, (_claim->>'max_claim_batch')::integer, true,
                      (_prefetch->>'lease_ms')::bigint, _trial, '{}', _queues, _bytes) w;
        SELECT coalesce(jsonb_agg(jsonb_build_object('job', a, 'claim_until', _now + (_prefetch->>'lease_ms')::bigint)
                        ORDER BY n), '[]')
            INTO _prefetched FROM unnest(_ahead) WITH ORDINALITY e (a, n);
    END IF;
    WITH told AS (DELETE FROM stop s WHERE s.session = _id RETURNING *)
    SELECT coalesce(jsonb_agg(jsonb_build_object('job', t.job, 'token', t.token, 'reason', t.reason) ORDER BY t.token), '[]')
        INTO _stops FROM told t;
    SELECT count(*) INTO _n FROM unnest(_started) e WHERE e->'Ok'->>'then' = 'running';
    _reply := jsonb_build_object('number', _number, 'settled', to_jsonb(_settled), 'started', to_jsonb(_started),
        'claimed', to_jsonb(_given), 'prefetched', _prefetched, 'stop', _stops, 'now', _now, 'lease_until', _session.lease_until);
    UPDATE session s SET number = _number, reply = _reply, reply_settled = NULL, reply_seqs = NULL, reply_tokens = NULL,
        reply_attempts = NULL, reply_timeouts = NULL, reply_retries = NULL, reply_dues = NULL,
        free_permits = greatest(s.free_permits - cardinality(_given) - _n, 0) WHERE s.session = _id;
    RETURN _reply;
END $$;

CREATE OR REPLACE FUNCTION api_exchange(_exchange jsonb, _fires jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT exchange_alone(_exchange, _fires, false)
$$;

-- Whether a reply brings a worker anything.
CREATE OR REPLACE FUNCTION brings(_reply jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_array_length(_reply->'claimed') + jsonb_array_length(_reply->'prefetched')
         + jsonb_array_length(_reply->'stop') > 0
$$;

-- An exchange that only asks: if it brings nothing it is rolled back, and the answer is NULL.
CREATE OR REPLACE FUNCTION api_fetch(_exchange jsonb, _fires jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE _reply jsonb; _again boolean;
BEGIN
    PERFORM check_exchange(_exchange);
    SELECT EXISTS (SELECT FROM session s WHERE s.session = (_exchange->>'session')::uuid
        AND s.number = (_exchange->>'number')::bigint) INTO _again;
    BEGIN
        _reply := exchange_alone(_exchange, _fires, false);
        IF _reply ? 'number' AND NOT _again AND NOT brings(_reply) THEN
            RAISE EXCEPTION 'nothing' USING ERRCODE = 'QONIL';
        END IF;
        RETURN _reply;
    EXCEPTION WHEN SQLSTATE 'QONIL' THEN
        RETURN NULL;
    END;
END $$;

-- What an exchange would find: it is tried and rolled back.
CREATE OR REPLACE FUNCTION api_work(_id uuid, _claim jsonb, _fires jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE _now bigint := lock_namespace(); _session session; _reply jsonb;
BEGIN
    SELECT * INTO _session FROM session s WHERE s.session = _id;
    IF NOT FOUND THEN PERFORM refuse('fenced', 'session ' || _id || ' has ended or never was'); END IF;
    BEGIN
        _reply := exchange_alone(jsonb_build_object('session', _id, 'number', _session.number + 1,
            'claim', _claim || jsonb_build_object('max', least((_claim->>'max')::integer, 1)),
            'free_permits', _session.free_permits, 'draining', false), _fires, true);
        RAISE EXCEPTION 'tried' USING ERRCODE = 'QONIL';
    EXCEPTION WHEN SQLSTATE 'QONIL' THEN
        NULL;
    END;
    IF _reply ? 'due' THEN RETURN _reply; END IF;
    RETURN jsonb_build_object('now', brings(_reply), 'next', next_date(_now, _id), 'at', _now, 'seen', 0);
END $$;

CREATE OR REPLACE FUNCTION api_sweep(_fires jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE _now bigint := lock_namespace(); _due jsonb := due_schedules(_now); _swept jsonb; _fired bigint;
BEGIN
    IF _due IS NOT NULL AND _fires IS NULL THEN RETURN _due; END IF;
    _swept := end_what_is_over(_now);
    _fired := fire(_now, _fires);
    PERFORM sum_totals();
    IF ended_anything(_swept) OR _fired > 0 THEN PERFORM notify_listeners(); END IF;
    RETURN _swept || jsonb_build_object('fired', _fired, 'forgotten', forget(_now));
END $$;
