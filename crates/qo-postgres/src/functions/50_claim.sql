-- The claim of an exchange that runs alone: one walk along the line, job by job, exactly as the rule book does it.
--
-- 1. The session's classes that have a job in line are listed, each with its first job (`classes_of`).
-- 2. The walk takes the first job of all classes in claim order.
-- 3. If the job may run, it starts (or is claimed ahead of time), and its class goes on with its next job.
-- 4. If a group of it is full, or kept for a big job, its whole class is left out of this walk. If a key of it is full,
--    the job is parked on the key. A step that is not next is parked on its workflow.
-- 5. The walk ends when it has given as many jobs as asked for, or their payloads are large enough, or no class is
--    left.

CREATE OR REPLACE FUNCTION queue_priority(_queue text) RETURNS integer LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce((SELECT q.priority FROM queue q WHERE q.queue = _queue), {{DEFAULT_QUEUE_PRIORITY}});
END $$;

CREATE OR REPLACE FUNCTION is_paused(_queue text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM queue q WHERE q.queue = _queue AND q.paused);
END $$;

CREATE OR REPLACE FUNCTION serves(_session session, _queue text, _task text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT (cardinality(_session.queues) = 0 OR _queue = ANY (_session.queues)) AND _task = ANY (_session.tasks)
$$;

-- The queues that have a job in line: those with a front, and the others, found one by one in the index.
CREATE OR REPLACE FUNCTION queues_in_line() RETURNS TABLE (queue text) LANGUAGE plpgsql STABLE AS $$
DECLARE _front record; _place record; _low text := '';
BEGIN
    FOR _front IN SELECT f.queue FROM front f UNION ALL SELECT chr(127) ORDER BY 1 LOOP
        LOOP
            SELECT l.queue INTO queue FROM line l
                WHERE l.parked_on IS NULL AND l.queue > _low AND l.queue < _front.queue ORDER BY l.queue LIMIT 1;
            EXIT WHEN NOT FOUND;
            RETURN NEXT;
            _low := queue;
        END LOOP;
        SELECT * INTO _place FROM front_of(_front.queue);
        PERFORM FROM line l WHERE l.parked_on IS NULL AND l.queue = _front.queue
            AND (l.priority, l.run_at, l.seq) >= (_place.priority, _place.run_at, _place.seq) ORDER BY l.priority, l.run_at, l.seq LIMIT 1;
        queue := _front.queue;
        IF FOUND THEN RETURN NEXT; END IF;
        _low := _front.queue;
    END LOOP;
END $$;

-- The classes that have a job in line which a session serves, found one by one in the index, each with its first place.
CREATE OR REPLACE FUNCTION classes_of(_session session)
RETURNS TABLE (queue text, class text, priority integer, run_at bigint, seq bigint) LANGUAGE sql STABLE AS $$
    WITH RECURSIVE desk AS (
        SELECT q.queue, t.task, f.priority, f.run_at, f.seq
        FROM queues_in_line() q CROSS JOIN LATERAL front_of(q.queue) f CROSS JOIN (SELECT DISTINCT unnest(_session.tasks) AS task) t
        WHERE (cardinality(_session.queues) = 0 OR q.queue = ANY (_session.queues)) AND NOT is_paused(q.queue)
    ), walk AS (
        SELECT d.*, n.class, n.first_priority, n.first_run_at, n.first_seq FROM desk d CROSS JOIN LATERAL (
            SELECT l.class, l.priority AS first_priority, l.run_at AS first_run_at, l.seq AS first_seq FROM line l
            WHERE l.parked_on IS NULL AND l.queue = d.queue AND l.class > d.task || ' ' AND l.class < d.task || '!'
              AND (l.priority, l.run_at, l.seq) >= (d.priority, d.run_at, d.seq)
            ORDER BY l.class, l.priority, l.run_at, l.seq LIMIT 1) n
        UNION ALL
        SELECT w.queue, w.task, w.priority, w.run_at, w.seq, n.* FROM walk w CROSS JOIN LATERAL (
            SELECT l.class, l.priority AS first_priority, l.run_at AS first_run_at, l.seq AS first_seq FROM line l
            WHERE l.parked_on IS NULL AND l.queue = w.queue AND l.class > w.class AND l.class < w.task || '!'
              AND (l.priority, l.run_at, l.seq) >= (w.priority, w.run_at, w.seq)
            ORDER BY l.class, l.priority, l.run_at, l.seq LIMIT 1) n
    ) SELECT w.queue, w.class, w.first_priority, w.first_run_at, w.first_seq FROM walk w
$$;

-- Big jobs in line that need slots of a reference, in claim order, with the slots that they need of it.
CREATE OR REPLACE FUNCTION big_jobs(_now bigint, _ref text)
RETURNS TABLE (seq bigint, need integer, queue_priority integer, priority integer, run_at bigint) LANGUAGE sql STABLE AS $$
    SELECT l.seq, n.slots, queue_priority(l.queue), l.priority, l.run_at
    FROM line l
    CROSS JOIN LATERAL (SELECT x.grp, x.key, x.cost, x.limits, x.queue, x.workflow FROM job x WHERE x.seq = l.seq OFFSET 0) j
    CROSS JOIN LATERAL needs(j.grp, j.key, j.cost, j.limits, j.queue) n
    WHERE l.big AND l.run_at <= _now AND n.ref = _ref AND n.slots >= 2
      AND is_next(j.workflow, l.seq)
    ORDER BY queue_priority(l.queue), l.priority, l.run_at, l.seq
$$;

-- The first big job before a place in claim order for which slots of a reference are kept, so that the job at that
-- place may not take them. The caller has found that the reference has room for `_slots`.
CREATE OR REPLACE FUNCTION reserved_for(
    _now bigint, _ref text, _slots integer, _place bigint[], _ahead boolean
) RETURNS TABLE (seq bigint, need integer) LANGUAGE plpgsql STABLE AS $$
DECLARE _limit integer := limit_of(_ref); _left bigint; _big record; _job job;
BEGIN
    IF _limit IS NULL OR _limit < 2 THEN RETURN; END IF;
    IF NOT EXISTS (SELECT FROM line l WHERE l.big) THEN RETURN; END IF;
    _left := greatest(free(_ref, _limit, _ahead) - _slots, 0);
    FOR _big IN SELECT * FROM big_jobs(_now, _ref) LOOP
        CONTINUE WHEN _big.need > _limit OR _left >= _big.need;
        EXIT WHEN ARRAY[_big.queue_priority, _big.priority, _big.run_at, _big.seq]::bigint[] >= _place;
        SELECT * INTO _job FROM job j WHERE j.seq = _big.seq;
        CONTINUE WHEN is_paused(_job.queue);
        CONTINUE WHEN NOT EXISTS (SELECT FROM session s WHERE NOT s.draining AND serves(s, _job.queue, _job.task));
        -- The big job may lack slots of this reference only; if this is its key, also slots of its group.
        CONTINUE WHEN EXISTS (
            SELECT FROM needs_of(_job) n
            WHERE n.ref <> _ref AND NOT (_job.key IS NOT NULL AND _ref = _job.grp || '/' || _job.key AND n.ref = _job.grp)
              AND NOT has_room(n.ref, n.slots, _ahead));
        seq := _big.seq;
        need := _big.need;
        RETURN NEXT;
        RETURN;
    END LOOP;
END $$;

-- The walk. `_given`, `_queues` and `_bytes` hold what the exchange's earlier walk gave: jobs, the queue of each, and
-- bytes of payload.
CREATE OR REPLACE FUNCTION walk(
    _now bigint, _session session, _max integer, _max_claim_batch integer, _ahead boolean, _lease_ms bigint, _trial boolean,
    INOUT _given jsonb[], INOUT _queues text[], INOUT _bytes bigint
) LANGUAGE plpgsql AS $$
DECLARE
    _class_queue text[]; _class text[]; _class_priority integer[];
    _seq bigint[]; _priority integer[]; _run_at bigint[]; _alive boolean[];
    _classes integer; _best integer; _i integer; _n integer := 0;
    _job job; _need record; _full text; _full_is_key boolean; _held boolean; _token bigint;
    _kept_ref text[] := '{}'; _kept_need integer[] := '{}'; _kept_before integer;
    _any_big boolean; _place bigint[]; _next record; _limit integer;
BEGIN
    IF _max <= 0 OR _bytes >= {{CLAIM_BYTES}} THEN RETURN; END IF;
    SELECT EXISTS (SELECT FROM line l WHERE l.big) INTO _any_big;
    SELECT array_agg(a.queue), array_agg(a.class), array_agg(queue_priority(a.queue)),
           array_agg(a.seq), array_agg(a.priority), array_agg(a.run_at), array_agg(true), count(*)
    INTO _class_queue, _class, _class_priority, _seq, _priority, _run_at, _alive, _classes
    FROM classes_of(_session) a;
    LOOP
        EXIT WHEN _n >= _max OR _bytes >= {{CLAIM_BYTES}};
        _best := NULL;
        FOR _i IN 1 .. _classes LOOP
            IF _alive[_i] AND (_best IS NULL
                OR (_class_priority[_i], _priority[_i], _run_at[_i], _seq[_i])
                 < (_class_priority[_best], _priority[_best], _run_at[_best], _seq[_best])) THEN
                _best := _i;
            END IF;
        END LOOP;
        EXIT WHEN _best IS NULL;
        SELECT * INTO STRICT _job FROM job j WHERE j.seq = _seq[_best];
        _full := NULL;
        _held := false;
        IF _max_claim_batch IS NOT NULL
            AND (SELECT count(*) FROM unnest(_queues) q WHERE q = _job.queue) >= _max_claim_batch THEN
            _alive[_best] := false;
            CONTINUE;
        END IF;
        IF _job.workflow IS NOT NULL AND NOT is_next(_job.workflow, _job.seq) THEN
            UPDATE line l SET parked_on = '~' || _job.workflow WHERE l.seq = _job.seq;
            PERFORM wake_keys_of(_job);
            _held := true;
        END IF;
        IF NOT _held AND _ahead THEN
            -- A big job must stand in line to keep its slots, so it is never claimed ahead of time.
            _held := EXISTS (SELECT FROM needs_of(_job) n WHERE n.slots >= 2 AND limit_of(n.ref) IS NOT NULL);
        END IF;
        IF NOT _held THEN
            FOR _need IN SELECT * FROM needs_of(_job) LOOP
                IF NOT has_room(_need.ref, _need.slots, _ahead) THEN
                    _full := _need.ref;
                    _full_is_key := strpos(_full, '/') > 0;
                    -- A full group stops the whole class; a full key stops the jobs that need it.
                    EXIT WHEN NOT _full_is_key;
                END IF;
            END LOOP;
            IF _full IS NOT NULL THEN
                _held := true;
                IF NOT _full_is_key THEN
                    _alive[_best] := false;
                    CONTINUE;
                ELSIF NOT _ahead THEN
                    UPDATE line l SET parked_on = _full WHERE l.seq = _job.seq;
                    PERFORM wake_keys_of(_job);
                END IF;
            END IF;
        END IF;
        IF NOT _held AND _any_big THEN
            FOR _need IN SELECT * FROM needs_of(_job) LOOP
                _limit := limit_of(_need.ref);
                CONTINUE WHEN _limit IS NULL;
                FOR _i IN 1 .. cardinality(_kept_ref) LOOP
                    IF _kept_ref[_i] = _need.ref
                        AND greatest(free(_need.ref, _limit, _ahead) - _need.slots, 0) < _kept_need[_i] THEN
                        _held := true;
                        _full := _need.ref;
                    END IF;
                END LOOP;
            END LOOP;
            IF NOT _held THEN
                _kept_before := cardinality(_kept_ref);
                _place := ARRAY[_class_priority[_best], _job.priority, _job.run_at, _job.seq]::bigint[];
                FOR _need IN SELECT n.ref, r.need FROM needs_of(_job) n
                    CROSS JOIN LATERAL reserved_for(_now, n.ref, n.slots, _place, _ahead) r LOOP
                    _kept_ref := _kept_ref || _need.ref;
                    _kept_need := _kept_need || _need.need;
                    _full := CASE WHEN _full IS NULL OR strpos(_full, '/') > 0 THEN _need.ref ELSE _full END;
                END LOOP;
                _held := cardinality(_kept_ref) > _kept_before;
            END IF;
            IF _held AND strpos(_full, '/') = 0 THEN
                -- Slots that are kept stay kept during this walk, so no job of this class can run.
                _alive[_best] := false;
                CONTINUE;
            END IF;
        END IF;
        -- Find the next job of the class before this one leaves the line.
        SELECT l.seq, l.priority, l.run_at INTO _next FROM line l
        WHERE l.parked_on IS NULL AND l.queue = _class_queue[_best] AND l.class = _class[_best]
          AND (l.priority, l.run_at, l.seq) > (_job.priority, _job.run_at, _job.seq)
        ORDER BY l.priority, l.run_at, l.seq LIMIT 1;
        IF NOT _held THEN
            IF _ahead THEN
                _token := claim_ahead(_now, _job, _session.session, _session.worker, _lease_ms, _trial);
            ELSE
                _token := start_job(_now, _job, _session.session, _session.worker, _trial);
            END IF;
            _given := _given || as_claimed(_job, _token);
            _queues := _queues || _job.queue;
            _bytes := _bytes + octet_length(_job.payload);
            _n := _n + 1;
        END IF;
        _alive[_best] := _next.seq IS NOT NULL;
        _seq[_best] := _next.seq;
        _priority[_best] := _next.priority;
        _run_at[_best] := _next.run_at;
    END LOOP;
END $$;
