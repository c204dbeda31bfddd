-- Submit, cancel and retry.
--
-- A submit may be part of a caller's transaction that stays open for minutes. So it takes no namespace lock, and
-- neither locks nor changes a row that an exchange waits for:
--
-- 1. It checks the jobs (`check_jobs`, before the first write), and each job for the rules that need the state
--    (`mistake_in`).
-- 2. A job with a known id or idempotency key is answered with the earlier job.
-- 3. A step locks its workflow's row, to take the next number. No exchange writes that row.
-- 4. A job with `reject` or `skip` locks the rows of its groups in `submit_lock` and then counts live jobs.
-- 5. A submit-side limit is added to `submit_limit`; a row without a number clears the limit. The next function that
--    runs alone counts it.
-- 6. The job is stored in `job`, `extra_limit` and `line`. It is parked until its date at most, never on a key or a
--    workflow: the transaction that ends such a reason might not see it.
--
-- Invariants: two submits with `reject` or `skip` never count one group at the same time; the steps of a workflow have
-- no gaps.

-- The job that an idempotency key, or else an id, was used for before.
CREATE OR REPLACE FUNCTION earlier(_id uuid, _idempotency_key text)
RETURNS TABLE (id uuid, task text, payload text, idempotency_key text) LANGUAGE sql STABLE AS $$
    SELECT e.id, e.task, e.payload, e.idempotency_key FROM (
        SELECT 1 AS place, j.id, j.task, j.payload, j.idempotency_key FROM job j WHERE j.idempotency_key = _idempotency_key
        UNION ALL SELECT 1, d.id, d.task, d.payload, d.idempotency_key FROM done d WHERE d.idempotency_key = _idempotency_key
        UNION ALL SELECT 2, j.id, j.task, j.payload, j.idempotency_key FROM job j WHERE j.id = _id
        UNION ALL SELECT 2, d.id, d.task, d.payload, d.idempotency_key FROM done d WHERE d.id = _id
    ) e ORDER BY e.place LIMIT 1
$$;

CREATE OR REPLACE FUNCTION group_of(_task text, _grp text) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce(_grp, (SELECT t.grp FROM task t WHERE t.task = _task), _task);
END $$;

CREATE OR REPLACE FUNCTION submit_limit_ref(_grp text, _key text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN _key IS NULL THEN _grp ELSE _grp || '/' || _key END
$$;

-- What a job does to the submit-side limit, as `limit_with` takes it: a number sets it, -1 clears it, NULL leaves it.
CREATE OR REPLACE FUNCTION brought_limit(_new jsonb) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN (_new->>'clear_limit')::boolean THEN -1 ELSE (_new->>'limit')::integer END
$$;

-- The first rule that needs the state and that a job breaks: its groups, and what it costs there. NULL if none.
CREATE OR REPLACE FUNCTION mistake_in(_new jsonb) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    _grp text := group_of(_new->>'task', _new->>'group'); _key text := _new->>'key';
    _cost integer := coalesce((_new->>'cost')::integer, {{DEFAULT_COST}}); _limits jsonb := _new->'limits';
    _limit_ref text := submit_limit_ref(_grp, _key); _need record; _limit integer;
BEGIN
    IF _limits IS NOT NULL THEN
        FOR _need IN SELECT e.key AS ref FROM jsonb_each(_limits) e WHERE split_part(e.key, '/', 1) = _grp LOOP
            RETURN invalid('limits', _need.ref, 'is the job''s own group; use cost and key for that');
        END LOOP;
    ELSIF _cost = 1 THEN
        RETURN NULL;
    END IF;
    FOR _need IN SELECT * FROM needs(_grp, _key, _cost, _limits, coalesce(_new->>'queue', '{{DEFAULT_QUEUE}}')) LOOP
        CONTINUE WHEN _need.slots = 1;
        _limit := limit_with(_need.ref, CASE WHEN _need.ref = _limit_ref THEN brought_limit(_new) END);
        IF _limit > 0 AND _need.slots > _limit THEN
            RETURN invalid(CASE WHEN coalesce(_limits ? _need.ref, false) THEN 'limits[' || _need.ref || ']' ELSE 'cost' END,
                _need.slots, 'must be at most ' || _limit || ', the limit of ' || _need.ref);
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

-- At REPEATABLE READ and SERIALIZABLE a query shows `done` as it was when the transaction began, but a unique index
-- shows what was committed since: 40001 if a job with this id or idempotency key has ended meanwhile.
CREATE OR REPLACE FUNCTION check_not_done(_seq bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') = 'read committed' THEN RETURN; END IF;
    IF NOT (SELECT store_done(j, 'cancelled', 0, NULL) FROM job j WHERE j.seq = _seq) THEN
        RAISE EXCEPTION 'another transaction submitted this job meanwhile' USING ERRCODE = '40001';
    END IF;
    DELETE FROM done d WHERE d.seq = _seq;
END $$;

-- Stores one job, or says why not. `_alone`: the caller holds the namespace lock exclusively.
CREATE OR REPLACE FUNCTION submit_one(_now bigint, _new jsonb, _alone boolean) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    _id uuid := (_new->>'id')::uuid; _idempotency_key text := _new->>'idempotency_key';
    _on_limit text := coalesce(_new->>'on_limit', '{{DEFAULT_ON_LIMIT}}');
    _limit integer := brought_limit(_new);
    _earlier record; _workflow workflow; _counted record; _live bigint; _step integer; _job job; _n bigint; _row record;
BEGIN
    SELECT * INTO _earlier FROM earlier(_id, _idempotency_key);
    IF FOUND THEN
        IF _earlier.task = _new->>'task' AND _earlier.payload = coalesce(_new->>'payload', 'null')
            AND (_idempotency_key IS NULL OR _earlier.idempotency_key IS NOT DISTINCT FROM _idempotency_key) THEN
            RETURN success(jsonb_build_object('outcome', 'existing', 'job', _earlier.id));
        END IF;
        RETURN failure('conflict',
            CASE WHEN _earlier.idempotency_key = _idempotency_key THEN 'idempotency_key ' || _idempotency_key
                 ELSE 'id ' || _id END || ' was used by another job, ' || _earlier.id);
    END IF;
    _job.grp := group_of(_new->>'task', _new->>'group');
    _job.key := _new->>'key';
    _job.cost := coalesce((_new->>'cost')::integer, {{DEFAULT_COST}});
    _job.limits := _new->'limits';
    _job.queue := coalesce(_new->>'queue', '{{DEFAULT_QUEUE}}');
    _job.workflow := _new->>'workflow';
    IF _job.workflow IS NOT NULL THEN
        -- The row stays locked until the transaction ends, so that the numbers of steps have no gaps.
        INSERT INTO workflow AS w (workflow, on_failure) VALUES (_job.workflow, coalesce(_new->>'on_failure', '{{DEFAULT_ON_FAILURE}}'))
            ON CONFLICT (workflow) DO UPDATE SET steps = w.steps RETURNING * INTO _workflow;
        IF _workflow.cancelled THEN
            RETURN failure('conflict', 'workflow: ' || _job.workflow || ': is cancelled');
        END IF;
        IF _new->>'on_failure' <> _workflow.on_failure THEN
            RETURN failure('conflict', 'on_failure: ' || (_new->>'on_failure') || ': workflow ' || _job.workflow
                || ' says ' || _workflow.on_failure);
        END IF;
    END IF;
    IF _on_limit <> 'wait' THEN
        SELECT n.ref, n.slots, limit_with(n.ref, CASE WHEN n.ref = submit_limit_ref(_job.grp, _job.key) THEN _limit END) AS most
        INTO _counted FROM needs_of(_job) n
        WHERE limit_with(n.ref, CASE WHEN n.ref = submit_limit_ref(_job.grp, _job.key) THEN _limit END) IS NOT NULL
        ORDER BY n.place LIMIT 1;
        IF FOUND THEN
            -- Lock the group too: a concurrent submit may count the group because it does not see a new limit of the
            -- key yet. A caller that runs alone must not wait for an open transaction.
            IF NOT _alone THEN
                INSERT INTO submit_lock AS a (ref)
                    SELECT DISTINCT r FROM unnest(ARRAY[_counted.ref, _job.grp, submit_limit_ref(_job.grp, _job.key)]) r ORDER BY r
                    ON CONFLICT (ref) DO UPDATE SET n = a.n + 1;
            END IF;
            SELECT coalesce(sum(slots_of(j, _counted.ref)), 0) INTO _live FROM jobs_of(_counted.ref) j;
            SELECT _live + coalesce(sum(slots_of(p, _counted.ref)), 0) INTO _live FROM programs_of(_counted.ref) p;
            IF _live + _counted.slots > _counted.most THEN
                -- Undo the workflow, if this job has made it.
                DELETE FROM workflow w WHERE w.workflow = _job.workflow AND w.steps = 0;
                PERFORM count_refusal(_counted.ref);
                IF _on_limit = 'skip' THEN RETURN success(jsonb_build_object('outcome', 'skipped')); END IF;
                RETURN failure('limit_reached', _counted.ref || ': its ' || _counted.most || ' slots are taken by '
                    || _live || ' of live jobs and programs');
            END IF;
        END IF;
    END IF;
    -- There is a limit to clear, as a rule, only if a class of jobs changes its mind. So an exchange need not run alone
    -- for each job that clears none.
    IF _limit >= 0 OR EXISTS (SELECT FROM submit_limit b WHERE b.ref = submit_limit_ref(_job.grp, _job.key)) AND _limit = -1 THEN
        INSERT INTO submit_limit (ref, slots) VALUES (submit_limit_ref(_job.grp, _job.key), nullif(_limit, -1));
    END IF;
    IF _job.workflow IS NOT NULL THEN
        UPDATE workflow w SET steps = w.steps + 1 WHERE w.workflow = _job.workflow RETURNING w.steps INTO _step;
    END IF;
    INSERT INTO job (seq, id, task, queue, grp, key, cost, limits, priority, submitted_at, run_at, good_until,
        max_attempts, retry, timeout_ms, submit_limit, idempotency_key, workflow, step, payload, traceparent)
    VALUES (nextval('acceptance'), _id, _new->>'task', _job.queue, _job.grp, _job.key, _job.cost, _job.limits,
        coalesce((_new->>'priority')::integer, {{DEFAULT_PRIORITY}}), _now, coalesce((_new->>'run_at')::bigint, _now),
        (_new->>'good_until')::bigint, coalesce((_new->>'max_attempts')::integer, {{DEFAULT_MAX_ATTEMPTS}}), _new->'retry',
        (_new->>'timeout_ms')::bigint, nullif(_limit, -1), _idempotency_key, _job.workflow, _step,
        coalesce(_new->>'payload', 'null'), _new->>'traceparent')
    ON CONFLICT DO NOTHING RETURNING * INTO _row;
    -- Two questions, each answered by an index: with OR the plan reads all jobs that have ended.
    IF NOT FOUND OR EXISTS (SELECT FROM done d WHERE d.id = _id)
        OR EXISTS (SELECT FROM done d WHERE d.idempotency_key = _idempotency_key) THEN
        -- Another transaction submitted it meanwhile, or it ended between the two queries.
        RAISE EXCEPTION 'another transaction submitted job % meanwhile', _id USING ERRCODE = '40001';
    END IF;
    PERFORM check_not_done(_row.seq);
    SELECT * INTO _job FROM job j WHERE j.seq = _row.seq;
    IF _job.limits IS NOT NULL THEN
        INSERT INTO extra_limit SELECT e.key, _job.seq, e.value::integer FROM jsonb_each_text(_job.limits) e;
    END IF;
    PERFORM put_in_line(_now, _job);
    RETURN success(jsonb_build_object('outcome', 'accepted', 'job', _id));
END $$;

-- Stores jobs that ask for nothing special and are new, all at once. False, and nothing is changed, if there are
-- others.
CREATE OR REPLACE FUNCTION submit_plain(_now bigint, _jobs jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE _ids uuid[]; _stored bigint;
BEGIN
    SELECT array_agg((e->>'id')::uuid) INTO _ids FROM jsonb_array_elements(_jobs) e
        HAVING NOT bool_or(e ?| ARRAY['idempotency_key', 'on_limit', 'workflow', 'limit', 'clear_limit', 'limits', 'cost']);
    IF _ids IS NULL OR cardinality(_ids) <> (SELECT count(DISTINCT i) FROM unnest(_ids) i)
        OR EXISTS (SELECT FROM job j WHERE j.id = ANY (_ids)) OR EXISTS (SELECT FROM done d WHERE d.id = ANY (_ids)) THEN
        RETURN false;
    END IF;
    WITH new AS (
        INSERT INTO job (seq, id, task, queue, grp, key, cost, priority, submitted_at, run_at, good_until, max_attempts,
            retry, timeout_ms, payload, traceparent)
        SELECT nextval('acceptance'), (n.e->>'id')::uuid, n.e->>'task', coalesce(n.e->>'queue', '{{DEFAULT_QUEUE}}'),
            group_of(n.e->>'task', n.e->>'group'), n.e->>'key', {{DEFAULT_COST}}, coalesce((n.e->>'priority')::integer, {{DEFAULT_PRIORITY}}), _now,
            coalesce((n.e->>'run_at')::bigint, _now), (n.e->>'good_until')::bigint,
            coalesce((n.e->>'max_attempts')::integer, {{DEFAULT_MAX_ATTEMPTS}}), n.e->'retry', (n.e->>'timeout_ms')::bigint,
            coalesce(n.e->>'payload', 'null'), n.e->>'traceparent'
        FROM (SELECT a.e FROM jsonb_array_elements(_jobs) WITH ORDINALITY a (e, i) ORDER BY a.i) n
        ON CONFLICT DO NOTHING RETURNING seq, queue, task, grp, priority, run_at
    ), lined AS (
        INSERT INTO line (seq, queue, task, class, priority, run_at, big, parked_on)
        SELECT n.seq, n.queue, n.task, n.task || ' ' || n.grp || ' {{DEFAULT_COST}}', n.priority, n.run_at, false,
               CASE WHEN n.run_at > _now THEN '@' END
        FROM new n RETURNING 1
    ) SELECT count(*) INTO _stored FROM lined;
    IF _stored <> cardinality(_ids) OR EXISTS (SELECT FROM done d WHERE d.id = ANY (_ids)) THEN
        RAISE EXCEPTION 'another transaction submitted some of these jobs meanwhile' USING ERRCODE = '40001';
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM check_not_done(j.seq) FROM job j WHERE j.id = ANY (_ids);
    END IF;
    RETURN true;
END $$;

-- Stores jobs, with one answer for each; one that breaks a rule refuses them all.
CREATE OR REPLACE FUNCTION submit_all(_now bigint, _jobs jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE _answers jsonb[] := '{}'; _new jsonb; _index integer := 0; _mistake text;
BEGIN
    IF submit_plain(_now, _jobs) THEN
        RETURN (SELECT jsonb_agg(jsonb_build_object('Ok', jsonb_build_object('outcome', 'accepted', 'job', a.e->'id')) ORDER BY a.i)
                FROM jsonb_array_elements(_jobs) WITH ORDINALITY a (e, i));
    END IF;
    FOR _new IN SELECT * FROM jsonb_array_elements(_jobs) LOOP
        IF NOT EXISTS (SELECT FROM earlier((_new->>'id')::uuid, _new->>'idempotency_key')) THEN
            _mistake := mistake_in(_new);
            IF _mistake IS NOT NULL THEN
                PERFORM refuse('invalid', 'jobs[' || _index || '].' || _mistake);
            END IF;
        END IF;
        _index := _index + 1;
    END LOOP;
    -- Lock existing workflows in one order, so that two calls that name the same ones do not deadlock.
    PERFORM 1 FROM workflow w WHERE w.workflow IN (SELECT e->>'workflow' FROM jsonb_array_elements(_jobs) e)
        ORDER BY w.workflow FOR UPDATE;
    FOR _new IN SELECT * FROM jsonb_array_elements(_jobs) LOOP
        _answers := _answers || submit_one(_now, _new, false);
    END LOOP;
    RETURN to_jsonb(_answers);
END $$;

CREATE OR REPLACE FUNCTION api_submit(_jobs jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM check_jobs(_jobs);
    PERFORM notify_listeners('job');
    RETURN submit_all(store_time(), _jobs);
END $$;

-- Cancels a job; answers with its state.
CREATE OR REPLACE FUNCTION cancel_one(_now bigint, _id uuid) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE _seq bigint; _owned owned_job; _state job_state;
BEGIN
    SELECT j.seq INTO _seq FROM job j WHERE j.id = _id;
    IF NOT FOUND THEN
        SELECT d.state INTO _state FROM done d WHERE d.id = _id;
        IF FOUND THEN RETURN success(_state); END IF;
        RETURN failure('not_found', 'job ' || _id);
    END IF;
    SELECT * INTO _owned FROM owned_job h WHERE h.seq = _seq;
    IF _owned.state = 'running' THEN
        IF NOT _owned.cancel THEN
            UPDATE owned_job h SET cancel = true WHERE h.seq = _seq;
            PERFORM tell_to_stop(_owned.session, _owned.token, _id, 'cancelled');
        END IF;
        RETURN success('running'::job_state);
    END IF;
    PERFORM finish(_now, _seq, 'cancelled', NULL);
    IF _owned.state = 'claimed' THEN
        PERFORM tell_to_stop(_owned.session, _owned.token, _id, 'cancelled');
    END IF;
    RETURN success('cancelled'::job_state);
END $$;

CREATE OR REPLACE FUNCTION api_cancel(_ids uuid[]) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE _now bigint := lock_namespace(); _answers jsonb[] := '{}'; _id uuid;
BEGIN
    PERFORM notify_listeners();
    FOREACH _id IN ARRAY _ids LOOP _answers := _answers || cancel_one(_now, _id); END LOOP;
    RETURN to_jsonb(_answers);
END $$;

-- Whether an ended job may be reopened.
CREATE OR REPLACE FUNCTION can_be_reopened(_done done) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT _done.state <> 'succeeded' AND keeps_rules(as_job(_done))
       AND NOT EXISTS (SELECT FROM workflow w WHERE w.workflow = _done.workflow AND w.cancelled)
$$;

CREATE OR REPLACE FUNCTION retry_one(_now bigint, _id uuid) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE _job job; _done done;
BEGIN
    SELECT * INTO _job FROM job j WHERE j.id = _id;
    IF FOUND THEN
        IF waits_for_attempt(_now, _job) THEN PERFORM hurry(_now, _job.seq); END IF;
        RETURN success(coalesce((SELECT h.state FROM owned_job h WHERE h.seq = _job.seq), 'pending'));
    END IF;
    SELECT * INTO _done FROM done d WHERE d.id = _id;
    IF NOT FOUND THEN RETURN failure('not_found', 'job ' || _id); END IF;
    IF NOT can_be_reopened(_done) THEN
        RETURN failure('conflict', 'job ' || _id || CASE WHEN _done.state = 'succeeded' THEN ': succeeded'
            WHEN NOT keeps_rules(as_job(_done)) THEN ': breaks a rule of jobs, and no worker can run it'
            ELSE ': its workflow ' || _done.workflow || ' is cancelled' END);
    END IF;
    PERFORM reopen(_now, _done.seq);
    RETURN success('pending'::job_state);
END $$;

CREATE OR REPLACE FUNCTION api_retry(_ids uuid[]) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE _now bigint := lock_namespace(); _answers jsonb[] := '{}'; _id uuid;
BEGIN
    PERFORM notify_listeners();
    FOREACH _id IN ARRAY _ids LOOP _answers := _answers || retry_one(_now, _id); END LOOP;
    RETURN to_jsonb(_answers);
END $$;
