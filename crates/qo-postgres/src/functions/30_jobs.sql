-- The life of a job: into line, to a session, back into line, to its end. The callers run alone, except that a submit
-- calls `put_in_line`; the exchange beside others calls only the functions that change nothing.

-- Puts a pending job in line, or parks it until its date.
CREATE OR REPLACE FUNCTION put_in_line(_now bigint, _job job) RETURNS void LANGUAGE sql AS $$
    INSERT INTO line (seq, queue, task, class, extra_keys, priority, run_at, big, parked_on)
    SELECT _job.seq, _job.queue, _job.task, l.class, l.extra_keys, _job.priority, _job.run_at, l.big,
           CASE WHEN _job.run_at > _now THEN '@' END
    FROM class_of(_job.task, _job.grp, _job.cost, _job.limits) l
$$;

-- The class of a job, its keyed extra limits, and whether it is big. A class is `TASK GROUP COST EXTRA=SLOTS …`, split
-- at its spaces: names have none.
CREATE OR REPLACE FUNCTION class_of(_task text, _grp text, _cost integer, _limits jsonb)
RETURNS TABLE (class text, extra_keys text, big boolean) LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    class := _task || ' ' || _grp || ' ' || _cost;
    extra_keys := '';
    big := _cost > 1;
    IF _limits IS NOT NULL THEN
        SELECT class || coalesce(string_agg(' ' || e.key || '=' || e.value, '' ORDER BY e.key COLLATE "C")
                                FILTER (WHERE strpos(e.key, '/') = 0), ''),
               coalesce(string_agg(' ' || e.key || '=' || e.value, '' ORDER BY e.key COLLATE "C")
                        FILTER (WHERE strpos(e.key, '/') > 0), ''),
               big OR coalesce(bool_or(e.value::integer > 1), false)
        INTO class, extra_keys, big FROM jsonb_each_text(_limits) e;
    END IF;
    RETURN NEXT;
END $$;

-- Jobs whose date has come are in line from now on.
CREATE OR REPLACE FUNCTION wake_due(_now bigint) RETURNS void LANGUAGE sql AS $$
    UPDATE line SET parked_on = NULL WHERE parked_on = '@' AND run_at <= _now
$$;

-- Whether a moment has come.
CREATE OR REPLACE FUNCTION is_over(_moment bigint, _now bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(_moment <= _now, false)
$$;

-- Starts a job that is in line or claimed: it takes all its slots, under a new token. Returns the token.
CREATE OR REPLACE FUNCTION start_job(_now bigint, _job job, _session uuid, _worker text, _trial boolean) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE _token bigint := next_token(_trial); _timeout_ms bigint := timeout_of(_job);
BEGIN
    DELETE FROM line WHERE seq = _job.seq;
    DELETE FROM owned_job WHERE seq = _job.seq;
    INSERT INTO owned_job (seq, state, session, worker, token, since, until)
        VALUES (_job.seq, 'running', _session, _worker, _token, _now, _now + _timeout_ms + {{TIMEOUT_GRACE_MS}});
    PERFORM count_slots(n.ref, n.slots) FROM needs_of(_job) n;
    PERFORM count_grant(ARRAY(SELECT n.ref FROM needs_of(_job) n));
    PERFORM put_next_in_line(_now, _job.workflow);
    RETURN _token;
END $$;

-- Claims a job in line ahead of time (prefetch). It takes no slot.
CREATE OR REPLACE FUNCTION claim_ahead(_now bigint, _job job, _session uuid, _worker text, _lease_ms bigint, _trial boolean)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE _token bigint := next_token(_trial);
BEGIN
    DELETE FROM line WHERE seq = _job.seq;
    INSERT INTO owned_job (seq, state, session, worker, token, since, until)
        VALUES (_job.seq, 'claimed', _session, _worker, _token, _now, _now + _lease_ms);
    -- A claimed job takes no slot, so a job parked behind it on its key may run.
    PERFORM wake_keys_of(_job);
    RETURN _token;
END $$;

CREATE OR REPLACE FUNCTION timeout_of(_job job) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce(_job.timeout_ms, (SELECT (t.options->>'timeout_ms')::bigint FROM task t WHERE t.task = _job.task));
END $$;

CREATE OR REPLACE FUNCTION retry_of(_job job) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce(_job.retry,
                    (SELECT nullif(t.options->'retry', 'null') FROM task t WHERE t.task = _job.task), '{}');
END $$;

-- A claimed job as its worker sees it.
CREATE OR REPLACE FUNCTION as_claimed(_job job, _token bigint) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('id', _job.id, 'token', _token, 'attempt', _job.attempts_used + 1,
        'max_attempts', _job.max_attempts, 'queue', _job.queue, 'task', _job.task, 'group', _job.grp,
        'key', _job.key, 'payload', _job.payload, 'timeout_ms', timeout_of(_job), 'retry', retry_of(_job),
        'traceparent', _job.traceparent, 'due_at', _job.run_at)
$$;

-- Tells a session with its next exchange to stop a job; nothing if the session has ended.
CREATE OR REPLACE FUNCTION tell_to_stop(_session uuid, _token bigint, _job uuid, _reason text) RETURNS void LANGUAGE sql AS $$
    INSERT INTO stop (session, token, job, reason)
    SELECT s.session, _token, _job, _reason FROM session s WHERE s.session = _session
    ON CONFLICT (session, token) DO UPDATE SET reason = excluded.reason
$$;

-- Stores a job among those that have ended. False if its id or idempotency key is there already. The columns of `job`
-- are named in their order.
CREATE OR REPLACE FUNCTION store_done(_job job, _state job_state, _finished_at bigint, _output text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO done (seq, id, task, queue, grp, key, cost, limits, priority, submitted_at, run_at, good_until, max_attempts, retry,
        timeout_ms, submit_limit, idempotency_key, workflow, step, skipped, attempts_used, attempts, payload, traceparent,
        state, finished_at, output)
    SELECT (_job).*, _state, _finished_at, _output ON CONFLICT DO NOTHING;
    RETURN FOUND;
END $$;

-- A live job ends. `_used` and `_attempts`, if given, replace what is remembered of its attempts. The row in `job` is
-- deleted without an UPDATE, so that no constraint of that table can keep a job from ending.
CREATE OR REPLACE FUNCTION finish(
    _now bigint, _seq bigint, _state job_state, _output text, _used integer DEFAULT NULL, _attempts jsonb DEFAULT NULL
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _job job; _stood_in_line boolean;
BEGIN
    DELETE FROM line WHERE seq = _seq;
    _stood_in_line := FOUND;
    DELETE FROM owned_job WHERE seq = _seq;
    DELETE FROM extra_limit WHERE seq = _seq;
    DELETE FROM job WHERE seq = _seq RETURNING * INTO _job;
    _job.attempts_used := coalesce(_used, _job.attempts_used);
    _job.attempts := coalesce(_attempts, _job.attempts);
    -- Ids are unique. If two jobs had one id after all, the end of one must not fail every exchange.
    PERFORM store_done(_job, _state, _now, _output);
    IF _stood_in_line THEN PERFORM wake_keys_of(_job); END IF;
    PERFORM drop_if_spent(n.ref) FROM needs_of(_job) n;
    PERFORM put_next_in_line(_now, _job.workflow);
END $$;

-- Whether a job keeps the constraints of the table `job` (migrations/0003_rules_of_jobs.sql). One that does not can
-- neither be stored nor reopened.
CREATE OR REPLACE FUNCTION keeps_rules(_job job) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT strpos(_job.task, ' ') = 0 AND strpos(_job.queue, ' ') = 0 AND strpos(_job.grp, ' ') = 0 AND strpos(_job.grp, '/') = 0
       AND _job.cost BETWEEN 1 AND {{LIMIT}}
       AND (_job.limits IS NULL OR jsonb_typeof(_job.limits) = 'object' AND NOT _job.limits @?
            '$.* ? (!(@.type() == "number") || @ < 1 || @ > {{LIMIT}} || @.floor() != @)')
       AND _job.attempts_used >= 0 AND _job.max_attempts >= 0 AND jsonb_typeof(_job.attempts) = 'array'
       AND (_job.timeout_ms IS NULL OR _job.timeout_ms BETWEEN 1 AND {{DURATION_MS}})
$$;

-- Fails the live jobs that break a constraint of their table, which an older release stored; returns how many. Their
-- slots are not subtracted but counted again afterwards: what such a job says of its slots may be nonsense.
CREATE OR REPLACE FUNCTION fail_rule_breakers() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE _now bigint := store_time(); _job job; _owned owned_job; _workflows text[] := '{}'; _failed bigint := 0;
BEGIN
    FOR _job IN SELECT j.* FROM job j WHERE NOT keeps_rules(j) ORDER BY j.seq LOOP
        DELETE FROM line WHERE seq = _job.seq;
        DELETE FROM extra_limit WHERE seq = _job.seq;
        DELETE FROM owned_job WHERE seq = _job.seq RETURNING * INTO _owned;
        IF FOUND THEN PERFORM tell_to_stop(_owned.session, _owned.token, _job.id, 'lease_ended'); END IF;
        DELETE FROM job WHERE seq = _job.seq;
        _job.attempts_used := greatest(_job.attempts_used, 0);
        IF jsonb_typeof(_job.attempts) <> 'array' THEN _job.attempts := '[]'; END IF;
        -- The attempt says why. If no worker had claimed the job, it names none.
        _job.attempts := with_attempt(_job.attempts, _job.attempts_used, coalesce(_owned.token, next_token(false)),
            coalesce(_owned.worker, 'migration'), coalesce(_owned.session, '00000000-0000-0000-0000-000000000000'),
            coalesce(_owned.since, _now), _now, 'failed', 'this job breaks a rule of jobs, and no worker can run it', 'failed');
        _job.attempts_used := _job.attempts_used + 1;
        PERFORM store_done(_job, 'failed', _now, NULL);
        _workflows := _workflows || _job.workflow;
        _failed := _failed + 1;
    END LOOP;
    IF _failed = 0 THEN RETURN 0; END IF;
    PERFORM drop_if_spent(b.ref) FROM (SELECT DISTINCT s.ref FROM submit_limit s) b;
    PERFORM recount(d->>'group') FROM jsonb_array_elements(api_drift()) d;
    PERFORM wake(p.parked_on) FROM (SELECT DISTINCT l.parked_on FROM line l WHERE strpos(l.parked_on, '/') > 0) p;
    PERFORM put_next_in_line(_now, w) FROM (SELECT DISTINCT unnest(_workflows)) t (w);
    RETURN _failed;
END $$;

-- The attempts that are remembered of a job, with one more: the latest {{ATTEMPTS_KEPT}}.
CREATE OR REPLACE FUNCTION with_attempt(
    _attempts jsonb, _used integer, _token bigint, _worker text, _session uuid, _since bigint, _now bigint,
    _outcome text, _error text, _then job_state
) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN jsonb_array_length(_attempts) >= {{ATTEMPTS_KEPT}} THEN _attempts - 0 ELSE _attempts END
        || jsonb_build_object('number', _used + 1, 'token', _token, 'worker', _worker, 'session', _session,
            'started_at', _since, 'ended_at', _now, 'outcome', _outcome, 'error', _error, 'then', _then)
$$;

-- Deletes the log of the attempt that `with_attempt` drops.
CREATE OR REPLACE FUNCTION forget_first_log(_attempts jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF jsonb_array_length(_attempts) >= {{ATTEMPTS_KEPT}} THEN
        DELETE FROM attempt_log g WHERE g.token = (_attempts->0->>'token')::bigint;
    END IF;
END $$;

-- The attempts that are remembered of a job that has ended, with the last one, which is stored in columns.
CREATE OR REPLACE FUNCTION attempts_of(_done done) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN _done.last_token IS NULL THEN _done.attempts ELSE
        with_attempt(_done.attempts, _done.attempts_used - (_done.last_outcome NOT IN ('snoozed', 'released'))::integer, _done.last_token,
            _done.last_worker, _done.last_session, _done.last_since, _done.finished_at, _done.last_outcome, _done.last_error, _done.state) END
$$;

-- The outcome that is remembered of an attempt: `retried` only if another attempt follows.
CREATE OR REPLACE FUNCTION ended_as(_outcome text, _then job_state) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN _outcome = 'retried' AND _then <> 'pending' THEN 'failed' ELSE _outcome END
$$;

-- Ends a running job's attempt, frees its slots, and returns the state that the job is in then.
CREATE OR REPLACE FUNCTION end_attempt(
    _now bigint, _seq bigint, _outcome text, _error text, _output text, _run_at bigint
) RETURNS job_state LANGUAGE plpgsql AS $$
DECLARE
    _job job; _owned owned_job; _then job_state; _used integer; _attempts jsonb;
    _uses boolean := _outcome NOT IN ('snoozed', 'released');
BEGIN
    SELECT * INTO STRICT _job FROM job WHERE seq = _seq;
    DELETE FROM owned_job WHERE seq = _seq AND state = 'running' RETURNING * INTO STRICT _owned;
    DELETE FROM stop WHERE session = _owned.session AND token = _owned.token;
    _used := _job.attempts_used + _uses::integer;
    _then := CASE
        WHEN _outcome IN ('succeeded', 'cancelled') THEN _outcome
        WHEN _owned.cancel THEN 'cancelled'
        WHEN _outcome = 'failed' OR _uses AND _used >= _job.max_attempts THEN 'failed'
        WHEN is_over(_job.good_until, _now) THEN 'expired'
        ELSE 'pending' END;
    _attempts := with_attempt(_job.attempts, _job.attempts_used, _owned.token, _owned.worker, _owned.session, _owned.since, _now,
                              ended_as(_outcome, _then), _error, _then);
    PERFORM forget_first_log(_job.attempts);
    PERFORM count_slots(n.ref, -n.slots) FROM needs_of(_job) n;
    IF _then = 'pending' THEN
        UPDATE job SET attempts_used = _used, attempts = _attempts, run_at = coalesce(_run_at, run_at)
            WHERE seq = _seq RETURNING * INTO _job;
        PERFORM put_in_line(_now, _job);
        PERFORM put_next_in_line(_now, _job.workflow);
    ELSE
        PERFORM finish(_now, _seq, _then, _output, _used, _attempts);
    END IF;
    RETURN _then;
END $$;

-- Ends the attempt of a running job and tells its worker to stop.
CREATE OR REPLACE FUNCTION take_away(_now bigint, _seq bigint, _outcome text, _error text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE _owned owned_job; _id uuid;
BEGIN
    SELECT * INTO STRICT _owned FROM owned_job WHERE seq = _seq;
    SELECT id INTO STRICT _id FROM job WHERE seq = _seq;
    PERFORM end_attempt(_now, _seq, _outcome, _error, NULL, NULL);
    PERFORM tell_to_stop(_owned.session, _owned.token, _id, 'lease_ended');
END $$;

-- Ends a claim as if it had never been; returns the state that the job is in then.
CREATE OR REPLACE FUNCTION give_back(_now bigint, _seq bigint) RETURNS job_state LANGUAGE plpgsql AS $$
DECLARE _job job;
BEGIN
    SELECT * INTO STRICT _job FROM job WHERE seq = _seq;
    DELETE FROM owned_job WHERE seq = _seq AND state = 'claimed';
    IF is_over(_job.good_until, _now) THEN
        PERFORM finish(_now, _seq, 'expired', NULL);
        RETURN 'expired';
    END IF;
    PERFORM put_in_line(_now, _job);
    RETURN 'pending';
END $$;

-- How the attempt or claim of a job is over, if the job then goes back into line. NULL if it is not over, or if the job
-- would end: views show an end only once a command has ended the job.
CREATE OR REPLACE FUNCTION goes_back(_now bigint, _job job, _owned owned_job) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF _owned.seq IS NULL OR is_over(_job.good_until, _now)
        OR _owned.state = 'running' AND (_owned.cancel OR _job.attempts_used + 1 >= _job.max_attempts) THEN
        RETURN NULL;
    END IF;
    IF is_over((SELECT s.lease_until FROM session s WHERE s.session = _owned.session), _now) THEN RETURN 'lease_ended'; END IF;
    IF is_over(_owned.until, _now) THEN RETURN 'timed_out'; END IF;
    RETURN NULL;
END $$;

-- The state of a live job as a claim would find it.
CREATE OR REPLACE FUNCTION shown_state(_now bigint, _job job, _owned owned_job) RETURNS job_state LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN _owned.seq IS NULL OR goes_back(_now, _job, _owned) IS NOT NULL THEN 'pending' ELSE _owned.state END
$$;

-- Whether a job has been tried and waits for the date of its next attempt.
CREATE OR REPLACE FUNCTION waits_for_attempt(_now bigint, _job job) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT _job.run_at > _now AND jsonb_array_length(_job.attempts) > 0
       AND NOT EXISTS (SELECT FROM owned_job h WHERE h.seq = _job.seq)
$$;

-- Makes a job that waits for its next attempt due now.
CREATE OR REPLACE FUNCTION hurry(_now bigint, _seq bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _job job;
BEGIN
    UPDATE job SET run_at = _now WHERE seq = _seq RETURNING * INTO STRICT _job;
    DELETE FROM line WHERE seq = _seq;
    PERFORM put_in_line(_now, _job);
    PERFORM put_next_in_line(_now, _job.workflow);
END $$;

-- Reopens a job that has ended: it is pending and due now, and keeps its attempts.
CREATE OR REPLACE FUNCTION reopen(_now bigint, _seq bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _done done; _job job;
BEGIN
    DELETE FROM done WHERE seq = _seq RETURNING * INTO STRICT _done;
    INSERT INTO job VALUES (_done.seq, _done.id, _done.task, _done.queue, _done.grp, _done.key, _done.cost,
        _done.limits, _done.priority, _done.submitted_at, _now,
        CASE WHEN NOT is_over(_done.good_until, _now) THEN _done.good_until END,
        _done.max_attempts, _done.retry, _done.timeout_ms, _done.submit_limit, _done.idempotency_key,
        _done.workflow, _done.step, false, 0, attempts_of(_done), _done.payload, _done.traceparent) RETURNING * INTO _job;
    INSERT INTO extra_limit SELECT e.key, _seq, e.value::integer FROM jsonb_each_text(coalesce(_job.limits, '{}')) e;
    IF _job.submit_limit IS NOT NULL THEN
        INSERT INTO submit_limit (ref, slots)
            VALUES (submit_limit_ref(_job.grp, _job.key), _job.submit_limit);
        PERFORM count_new_limits();
    END IF;
    PERFORM put_in_line(_now, _job);
    PERFORM put_next_in_line(_now, _job.workflow);
END $$;
