-- The exchange that does not need to be alone: it settles the session's own jobs and claims from the line, beside others
-- that do the same. It decides as `api_exchange` would, and leaves everything unusual to that one.
--
-- Locks, in this order: the namespace's lock (shared); the session's row; rows of `slots`, in the order of their
-- references, in one go; rows of `line`, which it skips where somebody else has them. So no two wait for each other.

-- What jobs take of groups that have a limit, and that limit. `i` is the place in the list.
CREATE OR REPLACE FUNCTION limited_needs(_seqs bigint[])
RETURNS TABLE (i bigint, ref text, slots integer, most integer) LANGUAGE sql STABLE AS $$
    SELECT s.i, n.ref COLLATE "C", n.slots, coalesce(g.declared, p.declared, g.submit)
    FROM unnest(_seqs) WITH ORDINALITY s (seq, i) JOIN job j ON j.seq = s.seq
    CROSS JOIN LATERAL (
        SELECT 'cluster' AS ref, 1 AS slots, NULL::text AS pattern
        UNION ALL SELECT 'queue:' || j.queue, 1, NULL
        UNION ALL SELECT j.grp, j.cost, NULL
        UNION ALL SELECT j.grp || '/' || j.key, j.cost, j.grp || '/*' WHERE j.key IS NOT NULL
        UNION ALL SELECT e.key, e.value::integer, every_key(e.key) FROM jsonb_each_text(j.limits) e WHERE j.limits IS NOT NULL
    ) n
    LEFT JOIN gate g ON g.ref = n.ref LEFT JOIN gate p ON p.ref = n.pattern
    WHERE coalesce(g.declared, p.declared, g.submit) IS NOT NULL
$$;

-- The same, summed up: a reference may come more than once.
CREATE OR REPLACE FUNCTION limited_sums(_seqs bigint[])
RETURNS TABLE (ref text, slots integer, most integer) LANGUAGE sql STABLE AS $$
    WITH j AS MATERIALIZED (
        SELECT j.queue, j.grp, j.key, j.cost, j.limits FROM unnest(_seqs) s (seq)
        CROSS JOIN LATERAL (SELECT * FROM job x WHERE x.seq = s.seq OFFSET 0) j
    ), n AS (
        SELECT 'cluster' AS ref, count(*) AS slots, NULL::text AS pattern FROM j
        UNION ALL SELECT 'queue:' || j.queue, count(*), NULL FROM j GROUP BY j.queue
        UNION ALL SELECT j.grp, sum(j.cost), NULL FROM j GROUP BY j.grp
        UNION ALL SELECT j.grp || '/' || j.key, sum(j.cost), j.grp || '/*' FROM j WHERE j.key IS NOT NULL GROUP BY j.grp, j.key
        UNION ALL SELECT e.key, e.value::bigint, every_key(e.key)
            FROM j CROSS JOIN LATERAL jsonb_each_text(j.limits) e WHERE j.limits IS NOT NULL
    )
    SELECT n.ref COLLATE "C", n.slots::integer, coalesce(g.declared, p.declared, g.submit)
    FROM n LEFT JOIN gate g ON g.ref = n.ref LEFT JOIN gate p ON p.ref = n.pattern
    WHERE coalesce(g.declared, p.declared, g.submit) IS NOT NULL
$$;

-- Whether something is about to happen that needs to be alone: something is over, a schedule is due, a limit came with a
-- job, a big job stands in line.
CREATE OR REPLACE FUNCTION must_be_alone(_now bigint, _session uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM session s WHERE s.lease_until <= _now AND s.session <> _session)
        OR EXISTS (SELECT FROM hold h WHERE h.until <= _now)
        OR EXISTS (SELECT FROM program p WHERE p.until <= _now)
        OR EXISTS (SELECT FROM job j WHERE j.good_until <= _now AND EXISTS (SELECT FROM line l WHERE l.seq = j.seq))
        OR EXISTS (SELECT FROM schedule s WHERE s.next <= _now)
        OR EXISTS (SELECT FROM submit_limit b WHERE NOT b.counted)
        OR (EXISTS (SELECT FROM gate) AND EXISTS (SELECT FROM line l WHERE l.big))
$$;

-- The next in line that a session serves: at most `_most`, in claim order, beginning with the first queues. The rows are
-- locked; those that somebody else has are passed over. `whole` is false where it did not look at all of the line.
CREATE OR REPLACE FUNCTION head_of_line(_session session, _most integer, _per_queue integer, _full text[])
RETURNS TABLE (seqs bigint[], whole boolean) LANGUAGE plpgsql AS $$
DECLARE _queue record; _some bigint[]; _seen integer; _foreign integer; _wanted integer;
BEGIN
    seqs := '{}';
    whole := true;
    FOR _queue IN
        SELECT q.queue, count(*) OVER (PARTITION BY queue_priority(q.queue)) AS equals
        FROM (SELECT unnest(_session.queues) AS queue WHERE cardinality(_session.queues) > 0
              UNION SELECT w.queue FROM queues_in_line() w WHERE cardinality(_session.queues) = 0) q
        WHERE NOT is_paused(q.queue)
        ORDER BY queue_priority(q.queue), q.queue
    LOOP
        IF _queue.equals > 1 THEN
            -- Queues of one priority are one line: that is for the walk along the lanes.
            whole := false;
            RETURN NEXT;
            RETURN;
        END IF;
        _wanted := least(_most - cardinality(seqs), _per_queue);
        SELECT count(*), count(*) FILTER (WHERE NOT h.served) INTO _seen, _foreign FROM (
            SELECT (l.task IN (SELECT unnest(_session.tasks))) IS TRUE AND split_part(l.lane, ' ', 2) <> ALL (_full) AS served FROM line l
            WHERE l.parked_on IS NULL AND l.queue = _queue.queue ORDER BY l.priority, l.run_at, l.seq LIMIT _wanted + 50) h;
        IF _foreign * 2 > _seen THEN
            -- Mostly for others: they are not to be looked at one by one.
            whole := false;
            EXIT;
        END IF;
        SELECT array_agg(h.seq ORDER BY h.priority, h.run_at, h.seq) INTO _some FROM (
            SELECT l.seq, l.priority, l.run_at FROM line l
            WHERE l.parked_on IS NULL AND l.queue = _queue.queue AND (l.task IN (SELECT unnest(_session.tasks))) IS TRUE
              AND (cardinality(_full) = 0 OR split_part(l.lane, ' ', 2) <> ALL (_full))
            ORDER BY l.priority, l.run_at, l.seq LIMIT _wanted FOR UPDATE SKIP LOCKED) h;
        seqs := seqs || coalesce(_some, '{}');
        EXIT WHEN cardinality(seqs) >= _most;
    END LOOP;
    RETURN NEXT;
END $$;

-- The groups that a lane's jobs need: a lane is TASK GROUP COST and EXTRA=SLOTS, as often as there are extra limits.
CREATE OR REPLACE FUNCTION groups_of_lane(_lane text) RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT w[2:2] || w[4:] FROM string_to_array(regexp_replace(_lane, '=[0-9]+', '', 'g'), ' ') w
$$;

-- The next in claim order among the lanes that a session serves and that need no group which is full: at most `_most`, perhaps
-- fewer, but at least one if there is one. Locked, where nobody else has them.
--
-- Of each lane the first few are looked at. Where a lane has more than that, nobody behind the last of those is known to be
-- next, so the list ends there; whoever wants more asks again.
CREATE OR REPLACE FUNCTION heads_of_lanes(
    _session session, _most integer, _per_queue integer, _given text[], _full text[], _passed bigint[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    _queues text[]; _lanes text[]; _priorities integer[]; _few integer; _seqs bigint[]; _locked bigint[];
BEGIN
    SELECT array_agg(a.queue), array_agg(a.lane), array_agg(queue_priority(a.queue)) INTO _queues, _lanes, _priorities
    FROM lanes_of(_session) a
    WHERE (cardinality(_full) = 0 OR NOT _full && (groups_of_lane(a.lane) || ARRAY['cluster', 'queue:' || a.queue]))
      AND (_per_queue IS NULL OR (SELECT count(*) FROM unnest(_given) g WHERE g = a.queue) < _per_queue);
    IF _lanes IS NULL THEN RETURN '{}'; END IF;
    _few := CASE WHEN cardinality(_lanes) = 1 THEN _most ELSE least(_most, _most / cardinality(_lanes) + 2) END;
    FOR _try IN 1 .. 10 LOOP
    WITH heads AS MATERIALIZED (
        SELECT h.seq, a.queue, a.queue_priority, h.priority, h.run_at, a.n,
               row_number() OVER (PARTITION BY a.n ORDER BY h.priority, h.run_at, h.seq) AS i
        FROM unnest(_queues, _lanes, _priorities) WITH ORDINALITY a (queue, lane, queue_priority, n)
        CROSS JOIN LATERAL (
            SELECT l.seq, l.priority, l.run_at FROM line l
            WHERE l.parked_on IS NULL AND l.queue = a.queue AND l.lane = a.lane AND l.seq <> ALL (_passed)
            ORDER BY l.priority, l.run_at, l.seq LIMIT _few) h
    ), known AS (
        -- How far the order is known.
        SELECT min(ARRAY[h.queue_priority, h.priority, h.run_at, h.seq]::bigint[]) AS until FROM heads h WHERE h.i = _few
    ), next AS (
        SELECT h.*, row_number() OVER (PARTITION BY h.queue ORDER BY h.priority, h.run_at, h.seq) AS of_queue
        FROM heads h, known k
        WHERE k.until IS NULL OR ARRAY[h.queue_priority, h.priority, h.run_at, h.seq]::bigint[] <= k.until
    )
    SELECT array_agg(m.seq ORDER BY m.queue_priority, m.priority, m.run_at, m.seq) INTO _seqs FROM (
        SELECT n.* FROM next n
        WHERE _per_queue IS NULL OR n.of_queue <= _per_queue - (SELECT count(*) FROM unnest(_given) g WHERE g = n.queue)
        ORDER BY n.queue_priority, n.priority, n.run_at, n.seq LIMIT _most) m;
    EXIT WHEN _seqs IS NULL;
    SELECT array_agg(f.seq ORDER BY f.n) INTO _locked FROM (
        SELECT l.seq, array_position(_seqs, l.seq) AS n FROM line l
        WHERE l.seq = ANY (_seqs) AND l.parked_on IS NULL FOR UPDATE SKIP LOCKED) f;
    EXIT WHEN _locked IS NOT NULL;
    -- Somebody else has them all: whoever is behind them.
    _passed := _passed || _seqs;
    END LOOP;
    RETURN coalesce(_locked, '{}');
END $$;

-- Jobs that a session settles, as they are told: what became of each is worked out for all of them at once.
-- Answers with the states, and with what they freed of groups that have a limit; none if somebody must be alone for it.
CREATE OR REPLACE FUNCTION settle_shared(
    _now bigint, _session session, _jobs uuid[], _tokens bigint[], _outcomes text[], _errors text[], _outputs text[],
    _delays bigint[], OUT settled text[], OUT freed_refs text[], OUT freed integer[], OUT freed_most integer[]
) LANGUAGE plpgsql AS $$
DECLARE _seqs bigint[]; _thens job_state[]; _extras boolean; _waiting boolean;
BEGIN
    freed_refs := '{}';
    freed := '{}';
    freed_most := '{}';
    settled := '{}';
    IF cardinality(_jobs) = 0 THEN RETURN; END IF;
    SELECT array_agg(h.seq ORDER BY o.n), array_agg((CASE
               WHEN o.outcome IN ('succeeded', 'cancelled') THEN o.outcome
               WHEN h.cancel THEN 'cancelled'
               WHEN o.outcome = 'failed' OR o.outcome = 'retried' AND j.attempts_used + 1 >= j.max_attempts THEN 'failed'
               WHEN is_over(j.good_until, _now) THEN 'expired'
               ELSE 'pending' END)::job_state ORDER BY o.n),
           bool_or(j.workflow IS NOT NULL OR j.own_limit IS NOT NULL), bool_or(j.limits IS NOT NULL)
    INTO _seqs, _thens, _waiting, _extras
    FROM unnest(_jobs, _tokens, _outcomes) WITH ORDINALITY o (job, token, outcome, n)
    -- One by one, by index: what a session holds may be much.
    CROSS JOIN LATERAL (SELECT * FROM hold x WHERE x.session = _session.session AND x.token = o.token AND x.state = 'running' OFFSET 0) h
    JOIN job j ON j.seq = h.seq AND j.id = o.job;
    -- One that owns nothing, or is there twice, or is a step, or may take a limit with it: that is not for us.
    IF cardinality(_seqs) IS DISTINCT FROM cardinality(_jobs) OR _waiting
        OR cardinality(_seqs) <> (SELECT count(DISTINCT q) FROM unnest(_seqs) q) THEN
        settled := NULL;
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM gate) THEN
        SELECT coalesce(array_agg(n.ref), '{}'), coalesce(array_agg(n.slots), '{}'), coalesce(array_agg(n.most), '{}')
        INTO freed_refs, freed, freed_most
        FROM (SELECT x.ref, sum(x.slots)::integer AS slots, max(x.most) AS most FROM limited_sums(_seqs) x GROUP BY x.ref) n;
        -- A limit that came with a job may go with the last of its group.
        IF EXISTS (SELECT FROM gate g WHERE g.ref = ANY (freed_refs) AND g.submit IS NOT NULL) THEN
            settled := NULL;
            RETURN;
        END IF;
    END IF;
    -- Each part hands on all that the next one needs: joining two of them would cost the square of their number.
    WITH held AS (
        DELETE FROM hold h USING unnest(_seqs, _thens, _outcomes, _errors, _outputs, _delays)
            o (seq, state, outcome, error, output, delay)
        WHERE h.seq = o.seq
        RETURNING h.seq, h.token, h.since, o.state, o.outcome, o.error, o.output, o.delay,
                  (o.outcome NOT IN ('snoozed', 'released'))::integer AS uses
    ), back AS (
        UPDATE job j SET
            attempts = with_attempt(j.attempts, j.attempts_used, t.token, _session.worker, _session.session, t.since, _now,
                                    t.outcome, t.error, t.state),
            attempts_used = j.attempts_used + t.uses,
            run_at = coalesce(_now + t.delay, j.run_at)
        FROM held t WHERE j.seq = t.seq AND t.state = 'pending'
        RETURNING j.seq, j.queue, j.task, j.grp, j.cost, j.limits, j.priority, j.run_at
    ), again AS (
        INSERT INTO line (seq, queue, task, lane, twin, priority, run_at, big, parked_on)
        SELECT b.seq, b.queue, b.task, l.lane, l.twin, b.priority, b.run_at, l.big, CASE WHEN b.run_at > _now THEN '@' END
        FROM back b CROSS JOIN LATERAL lane_of(b.task, b.grp, b.cost, b.limits) l
    ), gone AS (
        DELETE FROM job j USING held t WHERE j.seq = t.seq AND t.state <> 'pending'
        RETURNING j.*, t.state, t.output, t.outcome, t.error, t.token, t.since, t.uses
    )
    INSERT INTO done
    SELECT g.seq, g.id, g.task, g.queue, g.grp, g.key, g.cost, g.limits, g.priority, g.submitted_at, g.run_at, g.good_until,
        g.max_attempts, g.retry, g.timeout_ms, g.own_limit, g.idempotency_key, g.workflow, g.step, g.skipped,
        g.attempts_used + g.uses,
        with_attempt(g.attempts, g.attempts_used, g.token, _session.worker, _session.session, g.since, _now, g.outcome, g.error, g.state),
        g.payload, g.state, _now, g.output
    FROM gone g ON CONFLICT DO NOTHING;
    IF _extras THEN
        DELETE FROM extra e WHERE e.seq = ANY (_seqs) AND NOT EXISTS (SELECT FROM job j WHERE j.seq = e.seq);
    END IF;
    DELETE FROM stop s WHERE s.session = _session.session AND s.token = ANY (_tokens);
    settled := _thens::text[];
END $$;

-- What a session is given, as far as there is room, and what that changes in `slots`. Answers with jobs in claim order; none
-- if somebody must be alone for it.
--
-- It plans with what it sees, without a lock; then it locks the rows that change and looks again. Where as much is freed as
-- is taken nothing changes: no row is locked, and the sum stays what it is. If somebody else took what it counted on,
-- everything is undone and the exchange made anew.
CREATE OR REPLACE FUNCTION claim_shared(
    _now bigint, _session session, _max integer, _per_queue integer, _freed_refs text[], _freed integer[], _freed_most integer[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    _taken bigint[] := '{}'; _given text[] := '{}'; _seqs bigint[]; _whole boolean; _round integer := 0; _more boolean;
    _refs text[] := _freed_refs; _most integer[]; _room integer[]; _delta integer[];
    _full text[] := '{}'; _passed bigint[] := '{}'; _parked_on text[] := '{}'; _parked bigint[] := '{}';
    _new record; _job record; _k integer; _blocking text; _key_only boolean; _fits boolean; _now_taken bigint[];
    _lock text[]; _missing text[];
BEGIN
    IF NOT EXISTS (SELECT FROM gate) THEN
        IF _max <= 0 THEN RETURN _taken; END IF;
        SELECT h.seqs, h.whole INTO _taken, _whole FROM head_of_line(_session, _max, _per_queue, '{}') h;
        DELETE FROM line l WHERE l.seq = ANY (_taken);
        WHILE NOT _whole AND cardinality(_taken) < _max LOOP
            IF _per_queue IS NOT NULL THEN
                _given := ARRAY(SELECT j.queue FROM unnest(_taken) t JOIN job j ON j.seq = t);
            END IF;
            _seqs := heads_of_lanes(_session, _max - cardinality(_taken), _per_queue, _given, '{}', '{}');
            EXIT WHEN cardinality(_seqs) = 0;
            DELETE FROM line l WHERE l.seq = ANY (_seqs);
            _taken := _taken || _seqs;
        END LOOP;
        RETURN _taken;
    END IF;

    -- Keys that have room again let their next jobs in.
    PERFORM let_in(f.ref, f.freed) FROM unnest(_freed_refs, _freed) f (ref, freed)
        WHERE strpos(f.ref, '/') > 0 AND EXISTS (SELECT FROM line l WHERE l.parked_on = f.ref);
    _seqs := '{}';
    _whole := true;
    IF _max > 0 THEN
        -- Groups that are full, and stay so: nobody need look at those who wait for them.
        SELECT coalesce(array_agg(f.ref), '{}') INTO _full FROM (
            SELECT s.ref FROM slots s WHERE s.used >= s.most AND strpos(s.ref, '/') = 0
            UNION ALL SELECT g.ref FROM gate g WHERE g.declared = 0 OR g.declared IS NULL AND g.submit = 0
        ) f WHERE f.ref <> ALL (_freed_refs);
        SELECT h.seqs, h.whole INTO _seqs, _whole FROM head_of_line(_session, _max, _per_queue, _full) h;
    END IF;
    _more := _max > 0 AND (NOT _whole OR cardinality(_seqs) >= _max OR _per_queue IS NOT NULL);
    SELECT coalesce(array_agg(a.ref), '{}'), coalesce(array_agg(a.most), '{}'), coalesce(array_agg(a.want - a.freed), '{}'),
           coalesce(array_agg((a.most - coalesce(u.used, 0) + a.freed)::integer), '{}'),
           coalesce(bool_and(a.want <= a.most - coalesce(u.used, 0) + a.freed), true),
           array_agg(a.ref) FILTER (WHERE u.used IS NULL AND a.want > a.freed)
    INTO _refs, _most, _delta, _room, _fits, _missing
    FROM (
        SELECT x.ref, sum(x.want)::integer AS want, sum(x.freed)::integer AS freed, max(x.most) AS most FROM (
            SELECT n.ref, n.slots AS want, 0 AS freed, n.most FROM limited_sums(_seqs) n
            UNION ALL SELECT f.ref, 0, f.freed, f.most FROM unnest(_freed_refs, _freed, _freed_most) f (ref, freed, most)
        ) x GROUP BY x.ref
    ) a CROSS JOIN LATERAL (SELECT sum(s.used) AS used FROM slots s WHERE s.ref = a.ref OFFSET 0) u;
    IF _fits AND (NOT _more OR cardinality(_seqs) >= _max) THEN
        -- The usual case: everybody at the head of the line may run.
        DELETE FROM line l WHERE l.seq = ANY (_seqs);
        PERFORM change_slots(_refs, _delta, _most, _missing, '{}');
        -- Somebody may have been parked on a key while we waited for its row.
        PERFORM let_in(_refs[k], -_delta[k]) FROM generate_subscripts(_refs, 1) k
            WHERE _delta[k] < 0 AND strpos(_refs[k], '/') > 0 AND EXISTS (SELECT FROM line l WHERE l.parked_on = _refs[k]);
        RETURN _seqs;
    END IF;

    -- Somebody lacks room: one by one, and on along the lanes that are left.
    SELECT coalesce(array_agg(_room[k] ORDER BY k), '{}'), coalesce(array_agg(-coalesce(f.freed, 0) ORDER BY k), '{}')
    INTO _room, _delta
    FROM generate_subscripts(_refs, 1) k LEFT JOIN unnest(_freed_refs, _freed) f (ref, freed) ON f.ref = _refs[k];
    WHILE _max > cardinality(_taken) LOOP
        _round := _round + 1;
        IF _round > 1 THEN
            -- So many may be parked by one exchange; the next one goes on behind them.
            EXIT WHEN _round > 12;
            -- Where those at the front lack room, look at more than are wanted.
            _seqs := heads_of_lanes(_session, greatest(_max - cardinality(_taken), CASE WHEN cardinality(_passed) > 0 THEN 500 ELSE 0 END),
                                    _per_queue, _given, _full, _passed);
            _more := cardinality(_seqs) > 0;
        END IF;
        FOR _new IN SELECT n.ref, max(n.most) AS most FROM limited_needs(_seqs) n WHERE n.ref <> ALL (_refs) GROUP BY n.ref LOOP
            _refs := _refs || _new.ref;
            _most := _most || _new.most;
            _room := _room || (_new.most - used_now(_new.ref))::integer;
            _delta := _delta || 0;
        END LOOP;
        SELECT coalesce(bool_and(w.want <= _room[w.k]), true) AND cardinality(_seqs) <= _max - cardinality(_taken) INTO _fits FROM (
            SELECT array_position(_refs, n.ref) AS k, sum(n.slots) AS want FROM limited_needs(_seqs) n GROUP BY n.ref) w;
        IF _fits THEN
            FOR _new IN SELECT array_position(_refs, n.ref) AS k, sum(n.slots)::integer AS want FROM limited_needs(_seqs) n GROUP BY n.ref LOOP
                _room[_new.k] := _room[_new.k] - _new.want;
                _delta[_new.k] := _delta[_new.k] + _new.want;
            END LOOP;
            _now_taken := _seqs;
        ELSE
            _now_taken := '{}';
            FOR _job IN
                SELECT s.seq, j.refs, j.slots FROM unnest(_seqs) WITH ORDINALITY s (seq, i) LEFT JOIN (
                    SELECT n.i, array_agg(array_position(_refs, n.ref)) AS refs, array_agg(n.slots) AS slots
                    FROM limited_needs(_seqs) n GROUP BY n.i) j ON j.i = s.i ORDER BY s.i
            LOOP
                EXIT WHEN cardinality(_taken) + cardinality(_now_taken) >= _max;
                _blocking := NULL;
                _key_only := true;
                FOR _k IN 1 .. coalesce(cardinality(_job.refs), 0) LOOP
                    IF _room[_job.refs[_k]] < _job.slots[_k] THEN
                        IF strpos(_refs[_job.refs[_k]], '/') = 0 THEN
                            _key_only := false;
                            IF _refs[_job.refs[_k]] <> ALL (_full) THEN _full := _full || _refs[_job.refs[_k]]; END IF;
                        END IF;
                        _blocking := _refs[_job.refs[_k]];
                    END IF;
                END LOOP;
                IF _blocking IS NULL THEN
                    FOR _k IN 1 .. coalesce(cardinality(_job.refs), 0) LOOP
                        _room[_job.refs[_k]] := _room[_job.refs[_k]] - _job.slots[_k];
                        _delta[_job.refs[_k]] := _delta[_job.refs[_k]] + _job.slots[_k];
                    END LOOP;
                    _now_taken := _now_taken || _job.seq;
                ELSE
                    _passed := _passed || _job.seq;
                    IF _key_only THEN
                        _parked := _parked || _job.seq;
                        _parked_on := _parked_on || _blocking;
                    END IF;
                END IF;
            END LOOP;
        END IF;
        IF _per_queue IS NOT NULL THEN
            _given := _given || ARRAY(SELECT l.queue FROM line l WHERE l.seq = ANY (_now_taken));
        END IF;
        DELETE FROM line l WHERE l.seq = ANY (_now_taken);
        _taken := _taken || _now_taken;
        EXIT WHEN NOT _more;
    END LOOP;

    SELECT array_agg(DISTINCT r.ref) INTO _lock FROM (
        SELECT _refs[k] AS ref FROM generate_subscripts(_refs, 1) k WHERE _delta[k] <> 0
        UNION ALL SELECT unnest(_parked_on)) r;
    IF _lock IS NULL THEN RETURN _taken; END IF;
    SELECT array_agg(r) INTO _missing FROM unnest(_lock) r WHERE NOT EXISTS (SELECT FROM slots s WHERE s.ref = r);
    -- Rows of keys that jobs are parked on are locked, too.
    PERFORM change_slots(_refs, _delta, _most, _missing, _parked_on);
    -- Whoever frees a slot of a key first waits for this row, and then finds what is parked here.
    UPDATE line l SET parked_on = p.ref FROM unnest(_parked, _parked_on) p (seq, ref)
        JOIN slots s ON s.ref = p.ref AND s.share = 0
        WHERE l.seq = p.seq AND s.used >= _most[array_position(_refs, p.ref)];
    -- They leave the line without their slots: behind them, at their other keys, somebody may be next.
    PERFORM let_in(n.ref, 1) FROM limited_needs(_parked) n WHERE strpos(n.ref, '/') > 0 AND n.ref <> _parked_on[n.i];
    PERFORM let_in(_refs[k], -_delta[k]) FROM generate_subscripts(_refs, 1) k
        WHERE _delta[k] < 0 AND strpos(_refs[k], '/') > 0;
    RETURN _taken;
END $$;

-- Counts what was taken and freed, row by row in the order of the references, and looks whether there was room. `_missing`
-- have no row yet; `_also` are locked though nothing changes.
CREATE OR REPLACE FUNCTION change_slots(_refs text[], _delta integer[], _most integer[], _missing text[], _also text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE _changed text[]; _n integer; _over text;
BEGIN
    SELECT array_agg(_refs[k] COLLATE "C" ORDER BY _refs[k] COLLATE "C") INTO _changed
        FROM generate_subscripts(_refs, 1) k WHERE _delta[k] <> 0 OR _refs[k] = ANY (_also);
    IF _changed IS NULL THEN RETURN; END IF;
    IF _missing IS NOT NULL THEN
        INSERT INTO slots (ref, used, most) SELECT r, 0, _most[array_position(_refs, r)] FROM unnest(_missing) r
            ORDER BY r COLLATE "C" ON CONFLICT DO NOTHING;
    END IF;
    WITH counted AS (
        UPDATE slots s SET used = s.used + _delta[array_position(_refs, s.ref)]
        WHERE s.ref = ANY (_changed) AND s.share = 0 RETURNING s.ref, s.used
    )
    SELECT count(*), min(c.ref) FILTER (WHERE _delta[array_position(_refs, c.ref)] > 0 AND c.used > _most[array_position(_refs, c.ref)])
    INTO _n, _over FROM counted c;
    IF _over IS NOT NULL OR _n <> cardinality(_changed) THEN
        RAISE EXCEPTION 'somebody else took slots of % at the same moment', coalesce(_over, _changed[1]) USING ERRCODE = '40001';
    END IF;
END $$;

CREATE OR REPLACE FUNCTION used_now(_ref text) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT coalesce(sum(s.used), 0) FROM slots s WHERE s.ref = _ref
$$;

-- The answer, row by row: 0 the time and the lease's end, 1 what became of each settle, 2 each job that was claimed, 4
-- that there is nothing for one who only asks. No row: this exchange is for `api_exchange`; nothing has
-- happened.
CREATE OR REPLACE FUNCTION api_exchange_shared(
    _id uuid, _number bigint, _jobs uuid[], _tokens bigint[], _outcomes text[], _errors text[], _outputs text[],
    _delays bigint[], _max integer, _per_queue integer, _free_permits integer, _only_asks boolean
) RETURNS TABLE (
    kind integer, place bigint, id uuid, token bigint, state text, attempt integer, max_attempts integer, queue text, task text,
    grp text, key text, payload text, timeout_ms bigint, retry text, now bigint, lease_until bigint
) LANGUAGE plpgsql ROWS 50 AS $$
DECLARE
    _now bigint; _session session; _settled record; _taken bigint[]; _lease_until bigint;
    _granted bigint[]; _attempts integer[]; _timeouts bigint[]; _retries jsonb[];
BEGIN
    PERFORM check_isolation();
    PERFORM pg_advisory_xact_lock_shared(turn_key());
    _now := store_time();
    SELECT * INTO _session FROM session s WHERE s.session = _id FOR UPDATE;
    IF NOT FOUND OR _number <> _session.number + 1 OR must_be_alone(_now, _id) THEN RETURN; END IF;
    IF EXISTS (SELECT FROM stop s WHERE s.session = _id) THEN RETURN; END IF;
    SELECT * INTO _settled FROM settle_shared(_now, _session, _jobs, _tokens, _outcomes, _errors, _outputs, _delays);
    IF _settled.settled IS NULL THEN RETURN; END IF;
    IF EXISTS (SELECT FROM line l WHERE l.parked_on = '@' AND l.run_at <= _now) THEN
        UPDATE line l SET parked_on = NULL WHERE l.seq IN (
            SELECT d.seq FROM line d WHERE d.parked_on = '@' AND d.run_at <= _now ORDER BY d.run_at, d.seq
            LIMIT 10000 FOR UPDATE SKIP LOCKED);
    END IF;
    _taken := claim_shared(_now, _session, _max, _per_queue, _settled.freed_refs, _settled.freed, _settled.freed_most);
    -- What we took may have come with something unusual after we looked: a limit of its own, a big
    -- job, a moment by which it is over.
    IF _taken IS NULL OR cardinality(_taken) > 0 AND must_be_alone(_now, _id)
        OR EXISTS (SELECT FROM job j WHERE j.seq = ANY (_taken) AND (j.workflow IS NOT NULL OR j.good_until <= _now))
        OR (SELECT sum(octet_length(j.payload)) FROM job j WHERE j.seq = ANY (_taken)) >= 8388608 THEN
        RAISE EXCEPTION 'this exchange must be alone' USING ERRCODE = 'QOALO';
    END IF;
    IF _only_asks AND cardinality(_taken) = 0 THEN
        -- The number stays free. What was put aside, or called in, stays so: the next one need not do it again.
        RETURN QUERY SELECT 4, 0::bigint, NULL::uuid, NULL::bigint, NULL, NULL::integer, NULL::integer, NULL, NULL, NULL, NULL,
            NULL, NULL::bigint, NULL, NULL::bigint, NULL::bigint;
        RETURN;
    END IF;
    -- Somebody may wait for a job to end, for what was given back, or for slots that were freed. Where every worker has its
    -- hands full nobody is told: they come by themselves.
    IF cardinality(_jobs) > 0 AND EXISTS (SELECT FROM session s WHERE s.free_permits > 0 AND NOT s.draining) THEN
        PERFORM ring();
    END IF;
    SELECT array_agg(nextval('fence_token')) INTO _granted FROM generate_subscripts(_taken, 1);
    WITH granted AS (
        SELECT t.n, t.seq, t.token, j.attempts_used + 1 AS attempt,
               coalesce(j.timeout_ms, (k.options->>'timeout_ms')::bigint) AS timeout_ms,
               coalesce(j.retry, nullif(k.options->'retry', 'null')) AS retry
        FROM unnest(_taken, _granted) WITH ORDINALITY t (seq, token, n)
        JOIN job j ON j.seq = t.seq LEFT JOIN task k ON k.task = j.task
    ), held AS (
        INSERT INTO hold (seq, state, session, worker, token, since, until)
        SELECT g.seq, 'running', _id, _session.worker, g.token, _now, _now + g.timeout_ms + 10000 FROM granted g
    )
    SELECT array_agg(g.attempt ORDER BY g.n), array_agg(g.timeout_ms ORDER BY g.n), array_agg(g.retry ORDER BY g.n)
    INTO _attempts, _timeouts, _retries FROM granted g;
    UPDATE session s SET number = _number, lease_until = _now + s.lease_ms, draining = false,
        free_permits = greatest(_free_permits - cardinality(_taken), 0), reply = NULL, reply_now = _now,
        reply_settled = _settled.settled, reply_seqs = _taken, reply_tokens = _granted, reply_attempts = _attempts,
        reply_timeouts = _timeouts, reply_retries = _retries
        WHERE s.session = _id RETURNING s.lease_until INTO _lease_until;
    RETURN QUERY
        SELECT 0, 0::bigint, NULL::uuid, NULL::bigint, NULL, NULL::integer, NULL::integer, NULL, NULL, NULL, NULL, NULL, NULL::bigint, NULL, _now, _lease_until
        UNION ALL
        SELECT 1, r.n, NULL, NULL, r.r, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
            FROM unnest(_settled.settled) WITH ORDINALITY r (r, n)
        UNION ALL
        SELECT 2, c.n, j.id, c.token, NULL, c.attempt, j.max_attempts, j.queue, j.task, j.grp, j.key, j.payload, c.timeout_ms,
               c.retry::text, NULL, NULL
            FROM unnest(_taken, _granted, _attempts, _timeouts, _retries) WITH ORDINALITY c (seq, token, attempt, timeout_ms, retry, n)
            JOIN job j ON j.seq = c.seq;
END $$;

-- What an exchange would find, where that is easily told: no answer if it must be tried.
CREATE OR REPLACE FUNCTION api_work_shared(_id uuid, _max integer) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE _now bigint := store_time(); _session session; _brings boolean; _limited boolean; _lane record; _job record; _lacks boolean; _seen integer;
BEGIN
    SELECT * INTO _session FROM session s WHERE s.session = _id;
    IF NOT FOUND OR must_be_alone(_now, _id)
        OR EXISTS (SELECT FROM line l WHERE l.parked_on = '@' AND l.run_at <= _now) THEN
        RETURN NULL;
    END IF;
    _brings := EXISTS (SELECT FROM stop s WHERE s.session = _id);
    IF NOT _brings AND _max > 0 THEN
        _limited := EXISTS (SELECT FROM gate);
        FOR _lane IN SELECT * FROM lanes_of(_session) LOOP
            _seen := 0;
            FOR _job IN SELECT l.seq, j.workflow FROM line l JOIN job j USING (seq)
                WHERE l.parked_on IS NULL AND l.queue = _lane.queue AND l.lane = _lane.lane
                ORDER BY l.priority, l.run_at, l.seq LIMIT 100
            LOOP
                IF _job.workflow IS NOT NULL THEN RETURN NULL; END IF;
                _lacks := NULL;
                IF _limited THEN
                    -- A full group keeps the whole lane back; behind a full key there may be another.
                    SELECT bool_and(strpos(n.ref, '/') > 0) INTO _lacks FROM limited_needs(ARRAY[_job.seq]) n
                        WHERE n.most - used_now(n.ref) < n.slots;
                END IF;
                _seen := _seen + 1;
                EXIT WHEN NOT _lacks;
                -- Of very many that wait for their key nobody looks at all: an exchange puts them aside.
                _brings := _lacks IS NULL OR _seen = 100;
                EXIT WHEN _brings;
            END LOOP;
            EXIT WHEN _brings;
        END LOOP;
    END IF;
    RETURN jsonb_build_object('now', _brings, 'next', next_date(_now, _id), 'at', _now, 'seen', 0);
END $$;

-- The next moment at which something happens by itself, the end of one session aside.
CREATE OR REPLACE FUNCTION next_date(_now bigint, _id uuid) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT least(
        (SELECT l.run_at FROM line l WHERE l.parked_on = '@' AND l.run_at > _now
            AND is_its_turn((SELECT j.workflow FROM job j WHERE j.seq = l.seq), l.seq) ORDER BY l.run_at LIMIT 1),
        (SELECT j.good_until FROM job j WHERE j.good_until > _now AND EXISTS (SELECT FROM line l WHERE l.seq = j.seq)
            ORDER BY j.good_until LIMIT 1),
        (SELECT s.lease_until FROM session s WHERE s.lease_until > _now AND s.session <> _id ORDER BY s.lease_until LIMIT 1),
        (SELECT h.until FROM hold h WHERE h.until > _now ORDER BY h.until LIMIT 1),
        (SELECT p.until FROM program p WHERE p.until > _now ORDER BY p.until LIMIT 1),
        (SELECT s.next FROM schedule s WHERE s.next > _now ORDER BY s.next LIMIT 1))
$$;
