-- The exchange beside others: it settles jobs of its own session and claims from the line, while other exchanges do the
-- same. It decides what `api_exchange` would decide. If it meets anything unusual, it changes nothing and returns no
-- row (or fails with QOALO), and the client sends the exchange to `api_exchange`, which runs alone.
--
-- 1. Check the arguments; take the namespace lock shared; lock the session's row.
-- 2. Return if anything must be done alone (`must_be_alone`).
-- 3. Move the fronts if the era is over (45_front.sql).
-- 4. Settle all jobs at once (`settle_shared`).
-- 5. Wake jobs whose date has come; claim (54_shared_claim.sql). If other claims took the slots that it counted on,
--    claim again, up to five times, patiently from the second time on.
-- 6. Check again that nothing needs to be done alone: it may have come with a job that was just claimed.
-- 7. Draw tokens, store the claimed jobs, record the reply.
--
-- Lock order: the namespace lock (shared); the session's row; rows of `slots` (53_slots.sql). Rows of `line`, `early`,
-- `era` and `clock` it skips if another transaction has locked them. So no two exchanges wait for each other.
--
-- Joins are written so that the planner has one choice, from the list to the table by index: `LATERAL (... OFFSET 0)`,
-- `= ANY (ARRAY[...])`, `(SELECT true ...)`. So a plan that was made while the queue was empty is still good with a
-- million rows. A plain join is not: where the planner believes both tables empty, it may read all of one table for each
-- row of the other. Functions that count jobs (20, 40, 50, 60, 80, 81, 89, 90) join in the same way.

-- Whether something has to be done alone: something is over, a schedule is due, a submit-side limit is not counted yet,
-- or a big job is in line. Each query is ordered, so that it goes by index.
CREATE OR REPLACE FUNCTION must_be_alone(_now bigint, _session uuid) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN is_anything_over(_now, _session) OR coalesce(
        (SELECT true FROM schedule s WHERE s.next <= _now AND coalesce(s.put_off_until, _now) <= _now LIMIT 1),
        (SELECT true FROM submit_limit b WHERE NOT b.counted ORDER BY b.ref LIMIT 1),
        (SELECT true FROM line l WHERE l.big AND l.run_at <= _now AND EXISTS (SELECT FROM effective_limit) ORDER BY l.run_at LIMIT 1),
        false);
END $$;

-- Settles the jobs of a session all at once. Returns their states, and the slots that they freed of references that
-- have a limit; `settled` is NULL if the exchange must run alone.
CREATE OR REPLACE FUNCTION settle_shared(
    _now bigint, _session session, _jobs uuid[], _tokens bigint[], _outcomes text[], _errors text[], _outputs text[],
    _delays bigint[], OUT settled text[], OUT freed_refs text[], OUT freed integer[], OUT freed_most integer[]
) LANGUAGE plpgsql AS $$
DECLARE
    _seqs bigint[]; _thens job_state[]; _extras boolean; _waiting boolean; _limited boolean := EXISTS (SELECT FROM effective_limit);
    _queues text[]; _groups text[]; _keys text[]; _costs integer[]; _limits jsonb[]; _dropped bigint[];
BEGIN
    freed_refs := '{}';
    freed := '{}';
    freed_most := '{}';
    settled := '{}';
    IF cardinality(_jobs) = 0 THEN RETURN; END IF;
    SELECT array_agg(t.seq), array_agg(t.state), bool_or(t.waiting), bool_or(t.limits IS NOT NULL),
           array_agg(t.queue) FILTER (WHERE _limited), array_agg(t.grp) FILTER (WHERE _limited),
           array_agg(t.key) FILTER (WHERE _limited), array_agg(t.cost) FILTER (WHERE _limited),
           array_agg(t.limits) FILTER (WHERE t.limits IS NOT NULL),
           array_agg((t.attempts->0->>'token')::bigint) FILTER (WHERE jsonb_array_length(t.attempts) >= {{ATTEMPTS_KEPT}})
    INTO _seqs, _thens, _waiting, _extras, _queues, _groups, _keys, _costs, _limits, _dropped FROM (
        SELECT j.attempts, j.seq, j.queue, j.grp, j.key, j.cost, j.limits, j.workflow IS NOT NULL OR j.submit_limit IS NOT NULL AS waiting,
               (CASE
                   WHEN o.outcome IN ('succeeded', 'cancelled') THEN o.outcome
                   WHEN h.cancel THEN 'cancelled'
                   WHEN o.outcome = 'failed' OR o.outcome = 'retried' AND j.attempts_used + 1 >= j.max_attempts THEN 'failed'
                   WHEN is_over(j.good_until, _now) THEN 'expired'
                   ELSE 'pending' END)::job_state AS state
        FROM unnest(_jobs, _tokens, _outcomes) WITH ORDINALITY o (job, token, outcome, n)
        -- By index, one by one: a session may own very many jobs.
        CROSS JOIN LATERAL (SELECT * FROM owned_job x WHERE x.session = _session.session AND x.token = o.token AND x.state = 'running' OFFSET 0) h
        CROSS JOIN LATERAL (SELECT * FROM job x WHERE x.seq = h.seq AND x.id = o.job OFFSET 0) j
        ORDER BY o.n) t;
    -- A job that the session does not own or settles twice, a step, and a job with a submit-side limit make the
    -- exchange run alone.
    IF cardinality(_seqs) IS DISTINCT FROM cardinality(_jobs) OR _waiting
        OR cardinality(_seqs) <> (SELECT count(DISTINCT q) FROM unnest(_seqs) q) THEN
        settled := NULL;
        RETURN;
    END IF;
    IF _limited THEN
        SELECT coalesce(array_agg(n.ref), '{}'), coalesce(array_agg(n.slots), '{}'), coalesce(array_agg(n.most), '{}')
        INTO freed_refs, freed, freed_most FROM limited_sums(_queues, _groups, _keys, _costs, _limits) n;
        -- A submit-side limit may go with the last job of its group.
        IF EXISTS (SELECT FROM effective_limit g WHERE g.ref = ANY (freed_refs) AND g.submit IS NOT NULL) THEN
            settled := NULL;
            RETURN;
        END IF;
    END IF;
    -- Each part hands on all columns that the next one needs: a join of two parts would be quadratic.
    WITH held AS (
        DELETE FROM owned_job h USING unnest(_seqs, _thens, _outcomes, _errors, _outputs, _delays)
            o (seq, state, outcome, error, output, delay)
        WHERE h.seq = ANY (ARRAY[o.seq])
        RETURNING h.seq, h.token, h.since, o.state, ended_as(o.outcome, o.state) AS outcome,
                  left_bytes(o.error, {{ERROR_BYTES}}) AS error, o.output, o.delay,
                  (o.outcome NOT IN ('snoozed', 'released'))::integer AS uses
    ), back AS (
        UPDATE job j SET
            attempts = with_attempt(j.attempts, j.attempts_used, t.token, _session.worker, _session.session, t.since, _now,
                                    t.outcome, t.error, t.state),
            attempts_used = j.attempts_used + t.uses,
            run_at = coalesce(_now + t.delay, j.run_at)
        FROM held t WHERE j.seq = ANY (ARRAY[t.seq]) AND t.state = 'pending'
        RETURNING j.seq, j.queue, j.task, j.grp, j.cost, j.limits, j.priority, j.run_at
    ), again AS (
        INSERT INTO line (seq, queue, task, class, extra_keys, priority, run_at, big, parked_on)
        SELECT b.seq, b.queue, b.task, l.class, l.extra_keys, b.priority, b.run_at, l.big, CASE WHEN b.run_at > _now THEN '@' END
        FROM back b CROSS JOIN LATERAL class_of(b.task, b.grp, b.cost, b.limits) l
    ), gone AS (
        DELETE FROM job j USING held t WHERE j.seq = ANY (ARRAY[t.seq]) AND t.state <> 'pending'
        RETURNING j.*, t.state, t.output, t.outcome, t.error, t.token, t.since, t.uses
    )
    -- Ids are unique. If two jobs had one id after all, the exchange runs alone: see `failure` in call.rs.
    INSERT INTO done (seq, id, task, queue, grp, key, cost, limits, priority, submitted_at, run_at, good_until, max_attempts, retry,
        timeout_ms, submit_limit, idempotency_key, workflow, step, skipped, attempts_used, attempts, payload, state, finished_at,
        output, last_token, last_worker, last_session, last_since, last_outcome, last_error, traceparent)
    SELECT g.seq, g.id, g.task, g.queue, g.grp, g.key, g.cost, g.limits, g.priority, g.submitted_at, g.run_at, g.good_until,
        g.max_attempts, g.retry, g.timeout_ms, g.submit_limit, g.idempotency_key, g.workflow, g.step, g.skipped,
        g.attempts_used + g.uses, CASE WHEN jsonb_array_length(g.attempts) >= {{ATTEMPTS_KEPT}} THEN g.attempts - 0 ELSE g.attempts END,
        g.payload, g.state, _now, g.output, g.token, _session.worker, _session.session, g.since, g.outcome, g.error,
        g.traceparent
    FROM gone g;
    IF _extras THEN
        DELETE FROM extra_limit e WHERE e.seq = ANY (_seqs) AND (SELECT true FROM job j WHERE j.seq = e.seq) IS NULL;
    END IF;
    -- The log goes with the attempt that is dropped.
    IF _dropped IS NOT NULL THEN DELETE FROM attempt_log g WHERE g.token = ANY (_dropped); END IF;
    DELETE FROM stop s WHERE s.session = _session.session AND s.token = ANY (_tokens);
    settled := _thens::text[];
END $$;

-- The reply, row by row. `kind` is 0 for the time and the end of the lease, 1 for the state of each settled job, 2 for
-- each claimed job, 4 if an exchange that only asks gets nothing. No row: the client must send it to `api_exchange`;
-- nothing has changed.
CREATE OR REPLACE FUNCTION api_exchange_shared(
    _id uuid, _number bigint, _jobs uuid[], _tokens bigint[], _outcomes text[], _errors text[], _outputs text[],
    _delays bigint[], _max integer, _max_claim_batch integer, _free_permits integer, _only_asks boolean,
    _memory_percent integer
) RETURNS TABLE (
    kind integer, place bigint, id uuid, token bigint, state text, attempt integer, max_attempts integer, queue text, task text,
    grp text, key text, payload text, timeout_ms bigint, retry text, now bigint, lease_until bigint, traceparent text,
    due_at bigint
) LANGUAGE plpgsql ROWS 50 AS $$
DECLARE
    _now bigint; _session session; _settled record; _taken bigint[]; _lease_until bigint;
    _queues text[]; _groups text[]; _keyed boolean[]; _limits jsonb[];
    _granted bigint[]; _attempts integer[]; _timeouts bigint[]; _retries jsonb[]; _dues bigint[]; _unusual boolean; _bytes bigint;
BEGIN
    PERFORM check_isolation();
    PERFORM check_shared_exchange(_jobs, _tokens, _outcomes, _errors, _outputs, _delays, _max, _max_claim_batch, _free_permits,
        _memory_percent);
    PERFORM pg_advisory_xact_lock_shared(namespace_key());
    _now := store_time();
    SELECT * INTO _session FROM session s WHERE s.session = _id FOR UPDATE;
    -- After a failover to a server whose clock is behind, a session's time does not go back.
    _now := greatest(_now, _session.reply_now);
    IF NOT FOUND OR _number <> _session.number + 1 OR must_be_alone(_now, _id) THEN RETURN; END IF;
    IF EXISTS (SELECT FROM stop s WHERE s.session = _id) THEN RETURN; END IF;
    IF EXISTS (SELECT FROM era e WHERE e.began + era_ms() <= _now) THEN PERFORM move_fronts(_now); END IF;
    SELECT * INTO _settled FROM settle_shared(_now, _session, _jobs, _tokens, _outcomes, _errors, _outputs, _delays);
    IF _settled.settled IS NULL THEN RETURN; END IF;
    IF EXISTS (SELECT FROM line l WHERE l.parked_on = '@' AND l.run_at <= _now) THEN
        UPDATE line l SET parked_on = NULL WHERE l.seq = ANY (ARRAY(
            SELECT d.seq FROM line d WHERE d.parked_on = '@' AND d.run_at <= _now ORDER BY d.run_at, d.seq
            LIMIT 10000 FOR UPDATE SKIP LOCKED));
    END IF;
    IF NOT EXISTS (SELECT FROM effective_limit) THEN _taken := claim_unlimited(_session, _max, _max_claim_batch); END IF;
    FOR _try IN 1 .. 5 LOOP
        EXIT WHEN _taken IS NOT NULL;
        BEGIN
            _taken := claim_shared(_session, _max, _max_claim_batch, _settled.freed_refs, _settled.freed, _settled.freed_most);
        EXCEPTION WHEN serialization_failure THEN
            -- Another claim took the slots that this one counted on. The settles stay; the claim is made again,
            -- patiently.
            IF _try = 5 THEN
                RAISE EXCEPTION 'other claims took its slots five times' USING ERRCODE = 'QOALO';
            END IF;
            PERFORM set_config('qo.patient', 'on', true);
        END;
    END LOOP;
    IF EXISTS (SELECT FROM early) THEN
        -- Rows that another transaction has locked are left; `move_fronts` deletes them.
        DELETE FROM early e WHERE e.ctid = ANY (ARRAY(SELECT x.ctid FROM early x WHERE x.seq = ANY (_taken) FOR UPDATE SKIP LOCKED));
    END IF;
    SELECT CASE WHEN max(g.attempt) > 1 THEN array_agg(g.attempt) END, CASE WHEN count(g.timeout_ms) > 0 THEN array_agg(g.timeout_ms) END,
           CASE WHEN count(g.retry) > 0 THEN array_agg(g.retry) END, array_agg(g.run_at), bool_or(g.unusual), sum(g.bytes),
           array_agg(g.queue), array_agg(g.grp), array_agg(g.keyed), array_agg(g.limits) FILTER (WHERE g.limits IS NOT NULL)
    INTO _attempts, _timeouts, _retries, _dues, _unusual, _bytes, _queues, _groups, _keyed, _limits FROM (
        SELECT j.attempts_used + 1 AS attempt, coalesce(j.timeout_ms, (k.options->>'timeout_ms')::bigint) AS timeout_ms,
               coalesce(j.retry, nullif(k.options->'retry', 'null')) AS retry, j.run_at, j.queue, j.grp, j.key IS NOT NULL AS keyed, j.limits,
               j.workflow IS NOT NULL OR is_over(j.good_until, _now) AS unusual, octet_length(j.payload) AS bytes
        FROM unnest(_taken) WITH ORDINALITY t (seq, n)
        CROSS JOIN LATERAL (SELECT * FROM job x WHERE x.seq = t.seq OFFSET 0) j
        LEFT JOIN LATERAL (SELECT * FROM task x WHERE x.task = j.task OFFSET 0) k ON true
        ORDER BY t.n) g;
    -- Step 6. A claimed job may have come, after step 2, with a submit-side limit, as a big job, or with a `good_until`
    -- that is over.
    IF _taken IS NULL OR _unusual OR _bytes >= {{CLAIM_BYTES}} OR cardinality(_taken) > 0 AND must_be_alone(_now, _id) THEN
        RAISE EXCEPTION 'this exchange must run alone' USING ERRCODE = 'QOALO';
    END IF;
    IF _only_asks AND cardinality(_taken) = 0 THEN
        -- Its number stays free. Jobs that were parked or woken stay so: the next exchange need not do it again.
        RETURN QUERY SELECT 4, 0::bigint, NULL::uuid, NULL::bigint, NULL, NULL::integer, NULL::integer, NULL, NULL, NULL, NULL,
            NULL, NULL::bigint, NULL, NULL::bigint, NULL::bigint, NULL, NULL::bigint;
        RETURN;
    END IF;
    -- Other processes may wait for a job to end, for a job that was given back or for freed slots. If every worker is
    -- busy and takes as much as it frees, no notification is sent: they exchange soon anyway.
    IF cardinality(_jobs) > cardinality(_taken)
        OR cardinality(_jobs) > 0 AND EXISTS (SELECT FROM session s WHERE s.free_permits > 0 AND NOT s.draining) THEN
        PERFORM notify_listeners();
    END IF;
    -- Record the time once a second, without waiting. So after a failover time goes back by a second at most.
    PERFORM FROM clock c WHERE c.latest <= _now - 1000 FOR UPDATE SKIP LOCKED;
    IF FOUND THEN UPDATE clock SET latest = _now; END IF;
    IF cardinality(_taken) > 0 AND EXISTS (SELECT FROM effective_limit) THEN PERFORM count_grants(_queues, _groups, _keyed, _limits); END IF;
    SELECT array_agg(nextval('fence_token')) INTO _granted FROM generate_subscripts(_taken, 1);
    INSERT INTO owned_job (seq, state, session, worker, token, since, until)
        SELECT g.seq, 'running', _id, _session.worker, g.token, _now, _now + g.timeout_ms + {{TIMEOUT_GRACE_MS}}
        FROM unnest(_taken, _granted, _timeouts) g (seq, token, timeout_ms);
    UPDATE session s SET number = _number, lease_until = _now + s.lease_ms, draining = false,
        free_permits = greatest(_free_permits - cardinality(_taken), 0), memory_percent = _memory_percent, reply = NULL, reply_now = _now,
        reply_succeeded = cardinality(_settled.settled),
        reply_settled = CASE WHEN EXISTS (SELECT FROM unnest(_settled.settled) r WHERE r <> 'succeeded') THEN _settled.settled END,
        reply_seqs = _taken, reply_tokens = _granted, reply_attempts = _attempts,
        reply_timeouts = _timeouts, reply_retries = _retries, reply_dues = _dues
        WHERE s.session = _id RETURNING s.lease_until INTO _lease_until;
    RETURN QUERY
        SELECT 0, 0::bigint, NULL::uuid, NULL::bigint, NULL, NULL::integer, NULL::integer, NULL, NULL, NULL, NULL, NULL, NULL::bigint, NULL, _now, _lease_until, NULL, NULL::bigint
        UNION ALL
        SELECT 1, r.n, NULL, NULL, r.r, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
            FROM unnest(_settled.settled) WITH ORDINALITY r (r, n)
        UNION ALL
        SELECT 2, c.n, j.id, c.token, NULL, coalesce(c.attempt, 1), j.max_attempts, j.queue, j.task, j.grp, j.key, j.payload, c.timeout_ms,
               c.retry::text, NULL, NULL, j.traceparent, j.run_at
            FROM unnest(_taken, _granted, _attempts, _timeouts, _retries) WITH ORDINALITY c (seq, token, attempt, timeout_ms, retry, n)
            CROSS JOIN LATERAL (SELECT * FROM job x WHERE x.seq = c.seq OFFSET 0) j;
END $$;

-- What an exchange would find, if that is easy to tell; NULL if it must be tried.
CREATE OR REPLACE FUNCTION api_work_shared(_id uuid, _max integer) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE
    _now bigint := store_time(); _session session; _brings boolean; _limited boolean; _class record; _job record; _lacks boolean;
    _seen integer; _lacking text[];
BEGIN
    SELECT * INTO _session FROM session s WHERE s.session = _id;
    IF NOT FOUND OR must_be_alone(_now, _id)
        OR EXISTS (SELECT FROM line l WHERE l.parked_on = '@' AND l.run_at <= _now) THEN
        RETURN NULL;
    END IF;
    _brings := EXISTS (SELECT FROM stop s WHERE s.session = _id);
    IF NOT _brings AND _max > 0 THEN
        _limited := EXISTS (SELECT FROM effective_limit);
        FOR _class IN SELECT * FROM classes_of(_session) LOOP
            _seen := 0;
            _lacking := '{}';
            FOR _job IN SELECT l.seq, j.workflow, concat_ws(E'\n', j.key, l.extra_keys) AS keys
                FROM line l CROSS JOIN LATERAL (SELECT x.workflow, x.key FROM job x WHERE x.seq = l.seq OFFSET 0) j
                WHERE l.parked_on IS NULL AND l.queue = _class.queue AND l.class = _class.class
                  AND (l.priority, l.run_at, l.seq) >= (_class.priority, _class.run_at, _class.seq)
                ORDER BY l.priority, l.run_at, l.seq LIMIT 1000
            LOOP
                IF _job.workflow IS NOT NULL THEN RETURN NULL; END IF;
                _seen := _seen + 1;
                -- Jobs of one class with the same keys need the same slots: the first of them answers for all.
                IF _job.keys <> ALL (_lacking) THEN
                    _lacks := NULL;
                    IF _limited THEN
                        -- A full group stops the whole class; behind a full key another job may run.
                        SELECT bool_and(strpos(n.ref, '/') > 0) INTO _lacks FROM limited_needs(ARRAY[_job.seq]) n
                            WHERE n.most - used_now(n.ref) < n.slots;
                    END IF;
                    EXIT WHEN NOT _lacks;
                    _brings := _lacks IS NULL;
                    EXIT WHEN _brings;
                    _lacking := _lacking || _job.keys;
                END IF;
                -- If very many jobs wait for their keys, or for very many keys, say yes: an exchange parks them.
                _brings := _seen = 1000 OR cardinality(_lacking) = 100;
                EXIT WHEN _brings;
            END LOOP;
            EXIT WHEN _brings;
        END LOOP;
    END IF;
    RETURN jsonb_build_object('now', _brings, 'next', next_date(_now, _id), 'at', _now, 'seen', 0);
END $$;

-- The next moment at which something happens by itself, the end of this session's lease aside.
CREATE OR REPLACE FUNCTION next_date(_now bigint, _id uuid) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN least(
        (SELECT l.run_at FROM line l WHERE l.parked_on = '@' AND l.run_at > _now
            AND is_next((SELECT j.workflow FROM job j WHERE j.seq = l.seq), l.seq) ORDER BY l.run_at LIMIT 1),
        (SELECT j.good_until FROM job j WHERE j.good_until > _now AND (SELECT true FROM line l WHERE l.seq = j.seq)
            ORDER BY j.good_until LIMIT 1),
        (SELECT s.lease_until FROM session s WHERE s.lease_until > _now AND s.session <> _id ORDER BY s.lease_until LIMIT 1),
        (SELECT h.until FROM owned_job h WHERE h.until > _now ORDER BY h.until LIMIT 1),
        (SELECT p.until FROM program p WHERE p.until > _now ORDER BY p.until LIMIT 1),
        (SELECT min(greatest(s.next, s.put_off_until)) FROM schedule s WHERE greatest(s.next, s.put_off_until) > _now AND s.next IS NOT NULL));
END $$;
