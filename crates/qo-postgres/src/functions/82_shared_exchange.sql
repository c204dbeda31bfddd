-- The exchange that does not need to be alone: it settles the session's own jobs and claims from the line, beside others
-- that do the same. It decides as `api_exchange` would, and leaves everything unusual to that one.
--
-- Locks, in this order: the namespace's lock (shared); the session's row; rows of `slots`, in the order of their
-- references, in one go; rows of `line`, `early` and the clock's, which it skips where somebody else has them. So no two wait
-- for each other.
--
-- Joins are written so that there is one way to make them, from the list to the table, by index: `LATERAL (... OFFSET 0)`,
-- `= ANY (ARRAY[...])`, `(SELECT true ...)`. A plan that was made while the queue was empty lasts when it has a million rows.

-- What jobs take of groups that have a limit, and that limit. `i` is the place in the list.
CREATE OR REPLACE FUNCTION limited_needs(_seqs bigint[])
RETURNS TABLE (i bigint, ref text, slots integer, most integer) LANGUAGE sql STABLE AS $$
    SELECT s.i, n.ref COLLATE "C", n.slots, coalesce(g.declared, p.declared, g.submit)
    FROM unnest(_seqs) WITH ORDINALITY s (seq, i)
    CROSS JOIN LATERAL (SELECT * FROM job x WHERE x.seq = s.seq OFFSET 0) j
    CROSS JOIN LATERAL (
        SELECT 'cluster' AS ref, 1 AS slots, NULL::text AS pattern
        UNION ALL SELECT 'queue:' || j.queue, 1, NULL
        UNION ALL SELECT j.grp, j.cost, NULL
        UNION ALL SELECT j.grp || '/' || j.key, j.cost, j.grp || '/*' WHERE j.key IS NOT NULL
        UNION ALL SELECT e.key, e.value::integer, every_key(e.key) FROM jsonb_each_text(j.limits) e WHERE j.limits IS NOT NULL
    ) n
    LEFT JOIN LATERAL (SELECT * FROM gate x WHERE x.ref = n.ref OFFSET 0) g ON true
    LEFT JOIN LATERAL (SELECT * FROM gate x WHERE x.ref = n.pattern OFFSET 0) p ON true
    WHERE coalesce(g.declared, p.declared, g.submit) IS NOT NULL
$$;

-- The same for many jobs that are known, summed up.
CREATE OR REPLACE FUNCTION limited_sums(_queues text[], _groups text[], _keys text[], _costs integer[], _limits jsonb[])
RETURNS TABLE (ref text, slots integer, most integer) LANGUAGE sql STABLE AS $$
    WITH j AS MATERIALIZED (
        SELECT u.queue, u.grp, u.key, sum(u.cost) AS cost, count(*) AS jobs
        FROM unnest(_queues, _groups, _keys, _costs) u (queue, grp, key, cost) GROUP BY u.queue, u.grp, u.key
    ), k AS MATERIALIZED (
        -- Of groups whose jobs have keys: the limit of every key, and whether some have one of their own.
        SELECT g.grp, (SELECT x.declared FROM gate x WHERE x.ref = g.grp || '/*') AS every,
               (SELECT true FROM gate x WHERE x.ref > g.grp || '/' AND x.ref < g.grp || '0' AND x.ref <> g.grp || '/*' ORDER BY x.ref LIMIT 1) AS some
        FROM (SELECT DISTINCT j.grp FROM j WHERE j.key IS NOT NULL) g
    ), n AS (
        SELECT 'cluster' AS ref, sum(j.jobs) AS slots, NULL::text AS pattern FROM j
        UNION ALL SELECT 'queue:' || j.queue, sum(j.jobs), NULL FROM j GROUP BY j.queue
        UNION ALL SELECT j.grp, sum(j.cost), NULL FROM j GROUP BY j.grp
        UNION ALL SELECT k.grp || '/' || j.key, j.cost, k.grp || '/*' FROM k JOIN j ON j.grp = k.grp WHERE k.some AND j.key IS NOT NULL
        UNION ALL SELECT e.key, e.value::bigint, every_key(e.key)
            FROM unnest(_limits) u (limits) CROSS JOIN LATERAL jsonb_each_text(u.limits) e WHERE u.limits IS NOT NULL
    )
    SELECT a.ref COLLATE "C", sum(a.slots)::integer, max(a.most) FROM (
        SELECT n.ref, n.slots, coalesce(g.declared, p.declared, g.submit) AS most
        FROM n LEFT JOIN LATERAL (SELECT * FROM gate x WHERE x.ref = n.ref OFFSET 0) g ON true
        LEFT JOIN LATERAL (SELECT * FROM gate x WHERE x.ref = n.pattern OFFSET 0) p ON true
        UNION ALL SELECT k.grp || '/' || j.key, j.cost, k.every FROM k JOIN j ON j.grp = k.grp WHERE k.some IS NULL AND j.key IS NOT NULL
    ) a WHERE a.most IS NOT NULL GROUP BY 1
$$;

-- The same for jobs that are looked up.
CREATE OR REPLACE FUNCTION limited_sums_of(_seqs bigint[]) RETURNS TABLE (ref text, slots integer, most integer) LANGUAGE sql STABLE AS $$
    SELECT n.* FROM (
        SELECT array_agg(j.queue) AS queues, array_agg(j.grp) AS groups, array_agg(j.key) AS keys, array_agg(j.cost) AS costs,
               array_agg(j.limits) FILTER (WHERE j.limits IS NOT NULL) AS limits
        FROM unnest(_seqs) s (seq)
        CROSS JOIN LATERAL (SELECT x.queue, x.grp, x.key, x.cost, x.limits FROM job x WHERE x.seq = s.seq OFFSET 0) j OFFSET 0) a
    CROSS JOIN LATERAL limited_sums(a.queues, a.groups, a.keys, a.costs, a.limits) n
$$;

-- The same where no key has a limit: then the lanes of jobs say all.
CREATE OR REPLACE FUNCTION limited_sums_of_lanes(_queues text[], _lanes text[])
RETURNS TABLE (ref text, slots integer, most integer) LANGUAGE sql STABLE AS $$
    WITH l AS MATERIALIZED (
        SELECT u.queue, string_to_array(u.lane, ' ') AS words, count(*) AS jobs
        FROM unnest(_queues, _lanes) u (queue, lane) GROUP BY u.queue, u.lane
    ), n AS (
        SELECT 'cluster' AS ref, sum(l.jobs) AS slots FROM l
        UNION ALL SELECT 'queue:' || l.queue, sum(l.jobs) FROM l GROUP BY l.queue
        UNION ALL SELECT l.words[2], sum(l.jobs * l.words[3]::integer) FROM l GROUP BY l.words[2]
        UNION ALL SELECT split_part(e, '=', 1), sum(l.jobs * split_part(e, '=', 2)::integer)
            FROM l CROSS JOIN LATERAL unnest(l.words[4:]) e GROUP BY split_part(e, '=', 1)
    )
    SELECT n.ref COLLATE "C", sum(n.slots)::integer, max(coalesce(g.declared, g.submit))
    FROM n CROSS JOIN LATERAL (SELECT * FROM gate x WHERE x.ref = n.ref OFFSET 0) g
    WHERE coalesce(g.declared, g.submit) IS NOT NULL GROUP BY 1
$$;

-- Whether something is about to happen that needs to be alone: something is over, a schedule is due, a limit came with a
-- job, a big job stands in line. Ordered, so that there is one way to find it, by index.
CREATE OR REPLACE FUNCTION must_be_alone(_now bigint, _session uuid) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce(
        (SELECT true FROM session s WHERE s.lease_until <= _now AND s.session <> _session ORDER BY s.lease_until LIMIT 1),
        (SELECT true FROM hold h WHERE h.until <= _now ORDER BY h.until LIMIT 1),
        (SELECT true FROM program p WHERE p.until <= _now ORDER BY p.until LIMIT 1),
        (SELECT true FROM job j WHERE j.good_until <= _now AND (SELECT true FROM line l WHERE l.seq = j.seq) ORDER BY j.good_until LIMIT 1),
        (SELECT true FROM schedule s WHERE s.next <= _now LIMIT 1),
        (SELECT true FROM submit_limit b WHERE NOT b.counted ORDER BY b.ref LIMIT 1),
        (SELECT true FROM line l WHERE l.big AND EXISTS (SELECT FROM gate) ORDER BY l.queue LIMIT 1),
        false);
END $$;

-- The next in line that a session serves: at most `_most`, in claim order, beginning with the first queues. The rows are
-- locked; those that somebody else has are passed over. `whole` is false where it did not look at all of the line. It begins at
-- `_from`, if that is given, and says where whoever wants more goes on.
CREATE OR REPLACE FUNCTION head_of_line(
    _session session, _most integer, _per_queue integer, _full text[], _from place,
    OUT seqs bigint[], OUT queues text[], OUT lanes text[], OUT whole boolean, OUT until place
) LANGUAGE plpgsql AS $$
DECLARE _queue record; _place record; _first record; _window record; _some record; _wanted integer; _look integer; _jumped boolean;
BEGIN
    seqs := '{}';
    queues := '{}';
    lanes := '{}';
    whole := true;
    until := _from;
    FOR _queue IN
        SELECT q.queue, count(*) OVER (PARTITION BY queue_priority(q.queue)) AS equals
        FROM (SELECT unnest(_session.queues) AS queue WHERE cardinality(_session.queues) > 0
              UNION SELECT w.queue FROM queues_in_line() w WHERE cardinality(_session.queues) = 0) q
        WHERE NOT is_paused(q.queue)
        ORDER BY queue_priority(q.queue), q.queue
    LOOP
        CONTINUE WHEN _from.queue <> _queue.queue OR 'queue:' || _queue.queue = ANY (_full);
        EXIT WHEN 'cluster' = ANY (_full);
        IF _queue.equals > 1 THEN
            -- Queues of one priority are one line: that is for the walk along the lanes.
            whole := false;
            EXIT;
        END IF;
        _wanted := least(_most - cardinality(seqs), _per_queue);
        _look := _wanted + 50;
        _jumped := false;
        IF _from IS NULL THEN
            SELECT * INTO _place FROM front_of(_queue.queue);
        ELSE
            SELECT _from.priority AS priority, _from.run_at AS run_at, _from.seq AS seq INTO _place;
            _from := NULL;
        END IF;
        -- Window by window: how many of those that stand there does it serve, and which are the last of them?
        WHILE _wanted > 0 LOOP
            SELECT count(*) AS seen, count(*) FILTER (WHERE NOT h.served) AS others,
                   (array_agg(h.priority))[count(*)] AS priority, (array_agg(h.run_at))[count(*)] AS run_at, (array_agg(h.seq))[count(*)] AS seq
            INTO _window FROM (
                SELECT (l.task IN (SELECT unnest(_session.tasks))) IS TRUE AND split_part(l.lane, ' ', 2) <> ALL (_full) AS served,
                       l.priority, l.run_at, l.seq FROM line l
                WHERE l.parked_on IS NULL AND l.queue = _queue.queue AND (l.priority, l.run_at, l.seq) >= (_place.priority, _place.run_at, _place.seq)
                ORDER BY l.priority, l.run_at, l.seq LIMIT _look) h;
            IF _window.others * 2 > _window.seen THEN
                -- Mostly for others: they are not to be looked at one by one. It goes to the first that is its own.
                whole := NOT _jumped;
                EXIT WHEN _jumped;
                SELECT h.priority, h.run_at, h.seq INTO _first FROM lanes_of(_session) h
                    WHERE h.queue = _queue.queue AND (cardinality(_full) = 0 OR NOT needs_some(h.lane, _full))
                    ORDER BY h.priority, h.run_at, h.seq LIMIT 1;
                EXIT WHEN NOT FOUND;
                -- Only ahead: what it has passed it has, or somebody else.
                whole := (_first.priority, _first.run_at, _first.seq) >= (_place.priority, _place.run_at, _place.seq);
                EXIT WHEN NOT whole;
                _place := _first;
                _jumped := true;
                CONTINUE;
            END IF;
            SELECT coalesce(array_agg(h.seq), '{}') AS seqs, coalesce(array_agg(h.lane), '{}') AS lanes, count(*) AS n, (array_agg(h.priority))[count(*)] AS priority,
                   (array_agg(h.run_at))[count(*)] AS run_at INTO _some FROM (
                SELECT l.seq, l.lane, l.priority, l.run_at FROM line l
                WHERE l.parked_on IS NULL AND l.queue = _queue.queue AND (l.priority, l.run_at, l.seq) >= (_place.priority, _place.run_at, _place.seq)
                  AND (l.priority, l.run_at, l.seq) <= (_window.priority, _window.run_at, _window.seq)
                  AND (l.task IN (SELECT unnest(_session.tasks))) IS TRUE
                  AND (cardinality(_full) = 0 OR split_part(l.lane, ' ', 2) <> ALL (_full))
                ORDER BY l.priority, l.run_at, l.seq LIMIT _wanted FOR UPDATE SKIP LOCKED) h;
            seqs := seqs || _some.seqs;
            lanes := lanes || _some.lanes;
            queues := queues || array_fill(_queue.queue, ARRAY[_some.n::integer]);
            until := CASE WHEN _some.n = _wanted THEN ROW(_queue.queue, _some.priority, _some.run_at, _some.seqs[_some.n] + 1)::place
                          ELSE ROW(_queue.queue, _window.priority, _window.run_at, _window.seq + 1)::place END;
            EXIT WHEN _window.seen < _look;
            -- Others have them: the next window is larger.
            _wanted := _wanted - _some.n;
            _look := least(2 * _look, 1000);
            SELECT _window.priority AS priority, _window.run_at AS run_at, _window.seq + 1 AS seq INTO _place;
        END LOOP;
        EXIT WHEN NOT whole OR cardinality(seqs) >= _most;
    END LOOP;
END $$;

-- Whether a lane's jobs need a group that is full: a lane is TASK GROUP COST and EXTRA=SLOTS, as often as there are extra limits.
CREATE OR REPLACE FUNCTION needs_some(_lane text, _full text[]) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT split_part(_lane, ' ', 2) = ANY (_full)
        OR strpos(_lane, '=') > 0 AND string_to_array(regexp_replace(_lane, '=[0-9]+', '', 'g'), ' ') && _full
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
    _queues text[]; _lanes text[]; _priorities integer[]; _few integer; _seqs bigint[]; _locked bigint[]; _front record;
    _look integer := _most; _seen integer;
BEGIN
    SELECT array_agg(a.queue), array_agg(a.lane), array_agg(queue_priority(a.queue)) INTO _queues, _lanes, _priorities
    FROM lanes_of(_session) a
    WHERE (cardinality(_full) = 0 OR NOT needs_some(a.lane, _full) AND 'cluster' <> ALL (_full) AND 'queue:' || a.queue <> ALL (_full))
      AND (_per_queue IS NULL OR (SELECT count(*) FROM unnest(_given) g WHERE g = a.queue) < _per_queue);
    IF _lanes IS NULL THEN RETURN '{}'; END IF;
    IF cardinality(_lanes) = 1 THEN
        SELECT * INTO _front FROM front_of(_queues[1]);
        SELECT array_agg(h.seq) INTO _locked FROM (
            SELECT l.seq FROM line l
            WHERE l.parked_on IS NULL AND l.queue = _queues[1] AND l.lane = _lanes[1] AND l.seq NOT IN (SELECT unnest(_passed))
              AND (l.priority, l.run_at, l.seq) >= (_front.priority, _front.run_at, _front.seq)
            ORDER BY l.priority, l.run_at, l.seq
            LIMIT least(_most, _per_queue - (SELECT count(*) FROM unnest(_given) g WHERE g = _queues[1])) FOR UPDATE SKIP LOCKED) h;
        RETURN coalesce(_locked, '{}');
    END IF;
    FOR _try IN 1 .. 6 LOOP
    _few := least(_look, _look / cardinality(_lanes) + 2);
    WITH heads AS MATERIALIZED (
        SELECT h.seq, a.queue, a.queue_priority, h.priority, h.run_at, a.n,
               row_number() OVER (PARTITION BY a.n ORDER BY h.priority, h.run_at, h.seq) AS i
        FROM unnest(_queues, _lanes, _priorities) WITH ORDINALITY a (queue, lane, queue_priority, n)
        CROSS JOIN LATERAL front_of(a.queue) f
        CROSS JOIN LATERAL (
            SELECT l.seq, l.priority, l.run_at FROM line l
            WHERE l.parked_on IS NULL AND l.queue = a.queue AND l.lane = a.lane AND l.seq NOT IN (SELECT unnest(_passed))
              AND (l.priority, l.run_at, l.seq) >= (f.priority, f.run_at, f.seq)
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
        ORDER BY n.queue_priority, n.priority, n.run_at, n.seq LIMIT _look) m;
    EXIT WHEN _seqs IS NULL;
    SELECT array_agg(f.seq) INTO _locked FROM (
        SELECT l.seq FROM unnest(_seqs) WITH ORDINALITY s (seq, n)
        CROSS JOIN LATERAL (SELECT x.seq FROM line x WHERE x.seq = s.seq AND coalesce(x.parked_on, '') = '' FOR UPDATE SKIP LOCKED) l
        ORDER BY s.n LIMIT _most) f;
    EXIT WHEN cardinality(_locked) >= _most OR _try > 1 AND _locked IS NOT NULL OR cardinality(_seqs) = _seen;
    -- Somebody else has them: whoever is behind them.
    _seen := cardinality(_seqs);
    _look := _look + 1000;
    END LOOP;
    RETURN coalesce(_locked, '{}');
END $$;

-- Jobs that a session settles, as they are told: what became of each is worked out for all of them at once.
-- Answers with the states, and with what they freed of groups that have a limit; none if somebody must be alone for it.
CREATE OR REPLACE FUNCTION settle_shared(
    _now bigint, _session session, _jobs uuid[], _tokens bigint[], _outcomes text[], _errors text[], _outputs text[],
    _delays bigint[], OUT settled text[], OUT freed_refs text[], OUT freed integer[], OUT freed_most integer[]
) LANGUAGE plpgsql AS $$
DECLARE
    _seqs bigint[]; _thens job_state[]; _extras boolean; _waiting boolean; _limited boolean := EXISTS (SELECT FROM gate);
    _queues text[]; _groups text[]; _keys text[]; _costs integer[]; _limits jsonb[];
BEGIN
    freed_refs := '{}';
    freed := '{}';
    freed_most := '{}';
    settled := '{}';
    IF cardinality(_jobs) = 0 THEN RETURN; END IF;
    SELECT array_agg(t.seq), array_agg(t.state), bool_or(t.waiting), bool_or(t.limits IS NOT NULL),
           array_agg(t.queue) FILTER (WHERE _limited), array_agg(t.grp) FILTER (WHERE _limited),
           array_agg(t.key) FILTER (WHERE _limited), array_agg(t.cost) FILTER (WHERE _limited),
           array_agg(t.limits) FILTER (WHERE t.limits IS NOT NULL)
    INTO _seqs, _thens, _waiting, _extras, _queues, _groups, _keys, _costs, _limits FROM (
        SELECT j.seq, j.queue, j.grp, j.key, j.cost, j.limits, j.workflow IS NOT NULL OR j.own_limit IS NOT NULL AS waiting,
               (CASE
                   WHEN o.outcome IN ('succeeded', 'cancelled') THEN o.outcome
                   WHEN h.cancel THEN 'cancelled'
                   WHEN o.outcome = 'failed' OR o.outcome = 'retried' AND j.attempts_used + 1 >= j.max_attempts THEN 'failed'
                   WHEN is_over(j.good_until, _now) THEN 'expired'
                   ELSE 'pending' END)::job_state AS state
        FROM unnest(_jobs, _tokens, _outcomes) WITH ORDINALITY o (job, token, outcome, n)
        -- One by one, by index: what a session holds may be much.
        CROSS JOIN LATERAL (SELECT * FROM hold x WHERE x.session = _session.session AND x.token = o.token AND x.state = 'running' OFFSET 0) h
        CROSS JOIN LATERAL (SELECT * FROM job x WHERE x.seq = h.seq AND x.id = o.job OFFSET 0) j
        ORDER BY o.n) t;
    -- One that owns nothing, or is there twice, or is a step, or may take a limit with it: that is not for us.
    IF cardinality(_seqs) IS DISTINCT FROM cardinality(_jobs) OR _waiting
        OR cardinality(_seqs) <> (SELECT count(DISTINCT q) FROM unnest(_seqs) q) THEN
        settled := NULL;
        RETURN;
    END IF;
    IF _limited THEN
        SELECT coalesce(array_agg(n.ref), '{}'), coalesce(array_agg(n.slots), '{}'), coalesce(array_agg(n.most), '{}')
        INTO freed_refs, freed, freed_most FROM limited_sums(_queues, _groups, _keys, _costs, _limits) n;
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
        WHERE h.seq = ANY (ARRAY[o.seq])
        RETURNING h.seq, h.token, h.since, o.state, o.outcome, o.error, o.output, o.delay,
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
        INSERT INTO line (seq, queue, task, lane, twin, priority, run_at, big, parked_on)
        SELECT b.seq, b.queue, b.task, l.lane, l.twin, b.priority, b.run_at, l.big, CASE WHEN b.run_at > _now THEN '@' END
        FROM back b CROSS JOIN LATERAL lane_of(b.task, b.grp, b.cost, b.limits) l
    ), gone AS (
        DELETE FROM job j USING held t WHERE j.seq = ANY (ARRAY[t.seq]) AND t.state <> 'pending'
        RETURNING j.*, t.state, t.output, t.outcome, t.error, t.token, t.since, t.uses
    )
    -- Two jobs of one id cannot be; if there were, that is for one who is alone.
    INSERT INTO done
    SELECT g.seq, g.id, g.task, g.queue, g.grp, g.key, g.cost, g.limits, g.priority, g.submitted_at, g.run_at, g.good_until,
        g.max_attempts, g.retry, g.timeout_ms, g.own_limit, g.idempotency_key, g.workflow, g.step, g.skipped,
        g.attempts_used + g.uses, CASE WHEN jsonb_array_length(g.attempts) >= 100 THEN g.attempts - 0 ELSE g.attempts END,
        g.payload, g.state, _now, g.output, g.token, _session.worker, _session.session, g.since, g.outcome, g.error
    FROM gone g;
    IF _extras THEN
        DELETE FROM extra e WHERE e.seq = ANY (_seqs) AND NOT EXISTS (SELECT FROM job j WHERE j.seq = e.seq);
    END IF;
    DELETE FROM stop s WHERE s.session = _session.session AND s.token = ANY (_tokens);
    settled := _thens::text[];
END $$;

-- Who of some jobs is blocked, in their order, where groups have less room than all of them want: `scarce`, and the room that is
-- left of each. Where nothing but keys blocks a job, `lacks` is the place of one of them in the list; `full` has the groups that
-- block somebody.
CREATE OR REPLACE FUNCTION contend(
    _seqs bigint[], _scarce text[], _room integer[], OUT blocked bigint[], OUT lacks integer[], OUT full_groups text[]
) LANGUAGE plpgsql AS $$
DECLARE _contenders bigint[]; _job record; _place integer; _lacks integer; _key_only boolean;
BEGIN
    blocked := '{}';
    lacks := '{}';
    full_groups := '{}';
    SELECT array_agg(j.seq) INTO _contenders FROM (
        SELECT s.seq FROM unnest(_seqs) WITH ORDINALITY s (seq, i)
        CROSS JOIN LATERAL (SELECT * FROM job x WHERE x.seq = s.seq OFFSET 0) x
        WHERE ARRAY['cluster', 'queue:' || x.queue, x.grp, x.grp || '/' || x.key] && _scarce OR coalesce(x.limits ?| _scarce, false)
        ORDER BY s.i) j;
    -- They are asked one by one; for everybody else there is room in any case.
    FOR _job IN
        SELECT _contenders[n.i] AS seq, array_agg(array_position(_scarce, n.ref)) AS places, array_agg(n.slots) AS slots
        FROM limited_needs(_contenders) n WHERE n.ref = ANY (_scarce) GROUP BY n.i ORDER BY n.i
    LOOP
        _lacks := NULL;
        _key_only := true;
        FOR _k IN 1 .. cardinality(_job.places) LOOP
            _place := _job.places[_k];
            IF _room[_place] < _job.slots[_k] THEN
                _lacks := _place;
                IF strpos(_scarce[_place], '/') = 0 THEN
                    _key_only := false;
                    IF _scarce[_place] <> ALL (full_groups) THEN full_groups := full_groups || _scarce[_place]; END IF;
                END IF;
            END IF;
        END LOOP;
        IF _lacks IS NULL THEN
            FOR _k IN 1 .. cardinality(_job.places) LOOP
                _place := _job.places[_k];
                _room[_place] := _room[_place] - _job.slots[_k];
            END LOOP;
        ELSE
            blocked := blocked || _job.seq;
            lacks := lacks || CASE WHEN _key_only THEN _lacks END;
        END IF;
    END LOOP;
END $$;

-- What a session is given, as far as there is room, and what that changes in `slots`. Answers with jobs in claim order; none
-- if somebody must be alone for it.
--
-- It plans with what it sees, without a lock; then it locks the rows that change and looks again. Where as much is freed as
-- is taken nothing changes: no row is locked, and the sum stays what it is. If somebody else took what it counted on: of a key,
-- whoever counted on it stays in line; of a group, all is undone and made anew.
CREATE OR REPLACE FUNCTION claim_shared(
    _session session, _max integer, _per_queue integer, _freed_refs text[], _freed integer[], _freed_most integer[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    _found bigint[] := '{}'; _new bigint[]; _passed bigint[] := '{}'; _whole boolean := true;
    _filled text[] := '{}'; _full text[] := '{}'; _keys boolean := true; _missing integer := greatest(_max, 0);
    _head record; _ended boolean := false; _scarce text[]; _room integer[]; _blocked bigint[]; _new_full text[]; _at_keys integer := 0;
    _need record; _i integer; _left integer;
    -- Of every reference that is met: what is wanted and freed, the limit; and what is used, in how many rows, where it has looked.
    _refs text[]; _want integer[]; _back integer[]; _most integer[]; _used bigint[]; _shares integer[];
BEGIN
    -- Keys that have room again let their next jobs in.
    PERFORM let_in(f.ref, f.freed) FROM unnest(_freed_refs, _freed) f (ref, freed)
        WHERE strpos(f.ref, '/') > 0 AND (SELECT true FROM line l WHERE l.parked_on = f.ref LIMIT 1);
    IF _missing > 0 THEN
        -- Groups that are full. Where nothing is freed they stay so: nobody need look at those who wait for them.
        SELECT coalesce(array_agg(f.ref), '{}') INTO _filled FROM (
            SELECT s.ref FROM slots s WHERE s.is_full GROUP BY s.ref HAVING count(*) = max(s.shares)
            UNION ALL SELECT g.ref FROM gate g WHERE g.declared = 0 OR g.declared IS NULL AND g.submit = 0) f;
        _full := CASE WHEN _filled = '{}' THEN _filled ELSE ARRAY(SELECT f FROM unnest(_filled) f WHERE f NOT IN (SELECT unnest(_freed_refs))) END;
        _keys := coalesce((SELECT true FROM gate g WHERE strpos(g.ref, '/') > 0 ORDER BY g.ref LIMIT 1), false);
    END IF;
    SELECT '{}'::bigint[] AS seqs, '{}'::text[] AS queues, '{}'::text[] AS lanes, true AS whole, NULL::place AS until INTO _head;
    FOR _round IN 1 .. 8 LOOP
        _new := '{}';
        IF _missing > 0 THEN
            SELECT * INTO _head FROM head_of_line(_session, _missing, _per_queue, _full, _head.until) h;
            _whole := _head.whole;
            _ended := _round > 1 AND cardinality(_head.seqs) = 0;
            EXIT WHEN _ended;
            _new := _head.seqs;
            _found := _found || _new;
        END IF;
        IF _round = 1 THEN
            SELECT array_agg(a.ref), array_agg(a.want), array_agg(a.freed), array_agg(a.most), array_agg(a.used), array_agg(a.shares),
                   coalesce(array_agg(a.ref) FILTER (WHERE a.want > a.room), '{}'), coalesce(array_agg(a.room) FILTER (WHERE a.want > a.room), '{}')
            INTO _refs, _want, _back, _most, _used, _shares, _scarce, _room
            FROM (
                SELECT x.ref, x.want, x.freed, x.most, CASE WHEN x.asks THEN coalesce(u.used, 0) END AS used,
                       CASE WHEN x.asks THEN coalesce(u.shares, 0) END AS shares,
                       CASE WHEN x.asks THEN greatest(x.most - coalesce(u.used, 0) + x.freed, 0) ELSE x.want END::integer AS room
                FROM (
                    -- Where as much is freed as is taken of a group that is not full, there is room: nobody need ask.
                    SELECT y.ref, sum(y.want)::integer AS want, sum(y.freed)::integer AS freed, max(y.most) AS most,
                           sum(y.want) <> sum(y.freed) OR strpos(y.ref, '/') > 0 OR y.ref = ANY (_filled) AS asks
                    FROM (
                        SELECT n.ref, n.slots AS want, 0 AS freed, n.most FROM limited_sums_of(_new) n WHERE _keys
                        UNION ALL SELECT n.ref, n.slots, 0, n.most FROM limited_sums_of_lanes(_head.queues, _head.lanes) n WHERE NOT _keys
                        UNION ALL SELECT f.ref, 0, f.freed, f.most FROM unnest(_freed_refs, _freed, _freed_most) f (ref, freed, most)
                    ) y GROUP BY y.ref
                ) x CROSS JOIN LATERAL (SELECT sum(s.used) AS used, max(s.shares) AS shares FROM slots s WHERE x.asks AND s.ref = x.ref OFFSET 0) u
            ) a;
        ELSE
            -- A few more; of what was looked up before, nothing is looked up again.
            _scarce := '{}';
            _room := '{}';
            FOR _need IN SELECT * FROM limited_sums_of(_new) LOOP
                _i := array_position(_refs, _need.ref);
                IF _i IS NULL THEN
                    _i := cardinality(_refs) + 1;
                    _refs[_i] := _need.ref;
                    _want[_i] := 0;
                    _back[_i] := 0;
                    _most[_i] := _need.most;
                END IF;
                IF _used[_i] IS NULL THEN _used[_i] := used_now(_need.ref); END IF;
                _left := greatest(_most[_i] - _used[_i] + _back[_i] - _want[_i], 0);
                IF _need.slots > _left THEN
                    _scarce := _scarce || _need.ref;
                    _room := _room || _left;
                END IF;
                _want[_i] := _want[_i] + _need.slots;
            END LOOP;
        END IF;
        IF cardinality(_scarce) > 0 THEN
            -- Those who lack room are passed over, and others found. Where many lack room at their keys, that is for the walk
            -- along the lanes, which puts them aside.
            EXIT WHEN _per_queue IS NOT NULL;
            SELECT c.blocked, c.full_groups, _at_keys + cardinality(array_remove(c.lacks, NULL)) INTO _blocked, _new_full, _at_keys
                FROM contend(_new, _scarce, _room) c;
            EXIT WHEN _at_keys > 5 + _max / 10;
            _passed := _passed || _blocked;
            _full := _full || _new_full;
            FOR _need IN SELECT * FROM limited_sums_of(_blocked) LOOP
                _i := array_position(_refs, _need.ref);
                _want[_i] := _want[_i] - _need.slots;
            END LOOP;
        END IF;
        _missing := _max - cardinality(_found) + cardinality(_passed);
        _ended := _missing <= 0 OR cardinality(_scarce) = 0;
        EXIT WHEN _ended;
    END LOOP;
    IF NOT _ended OR _missing > 0 AND (NOT _whole OR _per_queue IS NOT NULL) THEN
        -- Somebody lacks room, or there may be more.
        RETURN claim_along_lanes(_session, _max, _per_queue, _freed_refs, _freed, _freed_most, _found, _full);
    END IF;
    -- The usual case: everybody at the head of the line may run, or nearly everybody.
    IF cardinality(_passed) > 0 THEN _found := without(_found, _passed); END IF;
    SELECT array_agg(c.ref), array_agg(c.want), array_agg(c.freed), array_agg(c.most), array_agg(c.shares)
    INTO _refs, _want, _back, _most, _shares
    FROM (SELECT x.ref, x.want, x.freed, x.most,
                 coalesce(x.shares, (SELECT y.shares FROM slots y WHERE y.ref = x.ref AND y.share = 0), 0) AS shares
          FROM unnest(_refs, _want, _back, _most, _shares) x (ref, want, freed, most, shares)
          WHERE x.want <> x.freed ORDER BY x.ref COLLATE "C") c;
    IF _refs IS NOT NULL THEN
        SELECT array_agg(c.lost), array_agg(w.want - c.over) INTO _scarce, _room
            FROM change_slots(_refs, ARRAY(SELECT c.want - c.freed FROM unnest(_want, _back) WITH ORDINALITY c (want, freed, i) ORDER BY c.i), _most, _shares) c
            JOIN unnest(_refs, _want) w (ref, want) ON w.ref = c.lost;
        IF _scarce IS NOT NULL THEN _found := stand_back(_found, _scarce, _room); END IF;
        -- Somebody may have been parked on a key while we waited for its row.
        PERFORM let_in(c.ref, c.freed - c.want) FROM unnest(_refs, _want, _back) c (ref, want, freed)
            WHERE c.want < c.freed AND strpos(c.ref, '/') > 0 AND (SELECT true FROM line l WHERE l.parked_on = c.ref LIMIT 1);
    END IF;
    DELETE FROM line l WHERE l.seq = ANY (_found);
    RETURN _found;
END $$;

-- A list without some, in its order.
CREATE OR REPLACE FUNCTION without(_seqs bigint[], _some bigint[]) RETURNS bigint[] LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(array_agg(s.seq ORDER BY s.i), '{}') FROM unnest(_seqs) WITH ORDINALITY s (seq, i)
    WHERE s.seq NOT IN (SELECT unnest(_some))
$$;

-- Of jobs that are counted already, those that may run after all, now that keys have less room than was seen. The others stay
-- in line, and what was counted for them is taken back. Rows that are not its own yet it takes only where nobody has them:
-- it has others already that come later in the order.
CREATE OR REPLACE FUNCTION stand_back(_seqs bigint[], _scarce text[], _room integer[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE _blocked bigint[]; _need record;
BEGIN
    SELECT c.blocked INTO _blocked FROM contend(_seqs, _scarce, _room) c;
    FOR _need IN SELECT n.ref, n.slots FROM limited_sums_of(_blocked) n ORDER BY n.ref COLLATE "C" LOOP
        PERFORM FROM slots s WHERE s.ref = _need.ref AND s.shares = 1 FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            UPDATE slots s SET used = s.used - _need.slots WHERE s.ref = _need.ref;
        ELSIF count_in_shares(_need.ref, -_need.slots, false) <> 0 THEN
            RAISE EXCEPTION 'somebody else is at % at the same moment', _need.ref USING ERRCODE = '40001';
        END IF;
        IF strpos(_need.ref, '/') > 0 AND _need.ref <> ALL (_scarce) THEN PERFORM let_in(_need.ref, _need.slots); END IF;
    END LOOP;
    RETURN without(_seqs, _blocked);
END $$;

-- The same where nothing has a limit: nobody takes anything from anybody, so it loses no race.
CREATE OR REPLACE FUNCTION claim_unlimited(_session session, _max integer, _per_queue integer) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE _taken bigint[]; _whole boolean; _given text[] := '{}'; _seqs bigint[];
BEGIN
    IF _max <= 0 THEN RETURN '{}'; END IF;
    SELECT h.seqs, h.whole INTO _taken, _whole FROM head_of_line(_session, _max, _per_queue, '{}', NULL) h;
    DELETE FROM line l WHERE l.seq = ANY (_taken);
    WHILE NOT _whole AND cardinality(_taken) < _max LOOP
        IF _per_queue IS NOT NULL THEN
            _given := ARRAY(SELECT j.queue FROM job j WHERE j.seq = ANY (_taken));
        END IF;
        _seqs := heads_of_lanes(_session, _max - cardinality(_taken), _per_queue, _given, '{}', '{}');
        EXIT WHEN cardinality(_seqs) = 0;
        DELETE FROM line l WHERE l.seq = ANY (_seqs);
        _taken := _taken || _seqs;
    END LOOP;
    RETURN _taken;
END $$;

-- The same where somebody lacks room: on along the lanes that are left, beginning with `_seqs`. Of groups that have a limit and
-- are met on the way, sorted: `_most` is the limit, `_room` what is left, and `_delta` what changes.
CREATE OR REPLACE FUNCTION claim_along_lanes(
    _session session, _max integer, _per_queue integer, _freed_refs text[], _freed integer[], _freed_most integer[],
    _seqs bigint[], _full text[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    _taken bigint[] := '{}'; _now_taken bigint[]; _given text[] := '{}'; _passed bigint[] := '{}'; _round integer := 0; _left integer;
    _refs text[]; _most integer[]; _room integer[]; _delta integer[]; _shares integer[];
    _scarce text[]; _scarce_most integer[]; _scarce_room integer[]; _contest record; _blocked bigint[];
    _parked bigint[] := '{}'; _parked_on text[] := '{}'; _parked_most integer[] := '{}';
BEGIN
    SELECT array_agg(f.ref), array_agg(f.most), array_agg((f.most - used_now(f.ref) + f.freed)::integer), array_agg(-f.freed)
    INTO _refs, _most, _room, _delta FROM unnest(_freed_refs, _freed, _freed_most) f (ref, freed, most);
    WHILE _max > cardinality(_taken) LOOP
        _round := _round + 1;
        _left := _max - cardinality(_taken);
        IF _round > 1 OR cardinality(_seqs) = 0 THEN
            -- So many may be parked by one exchange; the next one goes on behind them.
            EXIT WHEN _round > 12;
            -- Where those at the front lack room, look at more than are wanted.
            _seqs := heads_of_lanes(_session, greatest(_left, least(500, 2 * cardinality(_passed))), _per_queue, _given, _full, _passed);
            EXIT WHEN cardinality(_seqs) = 0;
        END IF;
        -- Groups that have less room than is wanted of them.
        SELECT coalesce(array_agg(a.ref) FILTER (WHERE a.want > a.room), '{}'), array_agg(a.most) FILTER (WHERE a.want > a.room),
               array_agg(a.room) FILTER (WHERE a.want > a.room)
        INTO _scarce, _scarce_most, _scarce_room
        FROM (
            SELECT x.ref, max(x.most) AS most, coalesce(max(x.room), max(x.most) - used_now(x.ref))::integer AS room, sum(x.want) AS want
            FROM (
                SELECT r.ref, r.most, r.room, 0 AS want FROM unnest(_refs, _most, _room) r (ref, most, room)
                UNION ALL SELECT n.ref, n.most, NULL, n.slots FROM limited_sums_of(_seqs) n
            ) x GROUP BY x.ref
        ) a;
        _blocked := '{}';
        IF cardinality(_scarce) > 0 THEN
            SELECT * INTO _contest FROM contend(_seqs, _scarce, _scarce_room);
            _blocked := _contest.blocked;
            _full := _full || ARRAY(SELECT g FROM unnest(_contest.full_groups) g WHERE g <> ALL (_full));
            SELECT _parked || coalesce(array_agg(b.seq ORDER BY b.i), '{}'), _parked_on || coalesce(array_agg(_scarce[b.lacks] ORDER BY b.i), '{}'),
                   _parked_most || coalesce(array_agg(_scarce_most[b.lacks] ORDER BY b.i), '{}')
            INTO _parked, _parked_on, _parked_most
            FROM unnest(_contest.blocked, _contest.lacks) WITH ORDINALITY b (seq, lacks, i) WHERE b.lacks IS NOT NULL;
        END IF;
        SELECT coalesce(array_agg(t.seq), '{}') INTO _now_taken FROM (
            SELECT s.seq FROM unnest(_seqs) WITH ORDINALITY s (seq, i) WHERE s.seq NOT IN (SELECT unnest(_blocked)) ORDER BY s.i LIMIT _left) t;
        _passed := _passed || _blocked;
        SELECT array_agg(a.ref), array_agg(a.most), array_agg(a.room - a.want), array_agg(a.delta + a.want)
        INTO _refs, _most, _room, _delta
        FROM (
            SELECT x.ref, max(x.most) AS most, coalesce(max(x.room), max(x.most) - used_now(x.ref))::integer AS room,
                   coalesce(max(x.delta), 0) AS delta, sum(x.want)::integer AS want
            FROM (
                SELECT r.ref, r.most, r.room, r.delta, 0 AS want FROM unnest(_refs, _most, _room, _delta) r (ref, most, room, delta)
                UNION ALL SELECT n.ref, n.most, NULL, NULL, n.slots FROM limited_sums_of(_now_taken) n
            ) x GROUP BY x.ref
        ) a;
        IF _per_queue IS NOT NULL THEN
            _given := _given || ARRAY(SELECT l.queue FROM line l WHERE l.seq = ANY (_now_taken));
        END IF;
        DELETE FROM line l WHERE l.seq = ANY (_now_taken);
        _taken := _taken || _now_taken;
    END LOOP;

    SELECT array_agg(c.ref), array_agg(c.delta), array_agg(c.most), array_agg(coalesce((SELECT s.shares FROM slots s WHERE s.ref = c.ref AND s.share = 0), 0))
    INTO _refs, _delta, _most, _shares
    FROM (SELECT r.* FROM unnest(_refs, _delta, _most) r (ref, delta, most) WHERE r.delta <> 0 ORDER BY r.ref COLLATE "C") c;
    IF EXISTS (SELECT FROM change_slots(_refs, _delta, _most, _shares)) THEN
        RAISE EXCEPTION 'somebody else took slots of a key at the same moment' USING ERRCODE = '40001';
    END IF;
    IF cardinality(_parked) > 0 THEN PERFORM put_aside(_parked, _parked_on, _parked_most); END IF;
    PERFORM let_in(c.ref, -c.delta) FROM unnest(_refs, _delta) c (ref, delta)
        WHERE c.delta < 0 AND strpos(c.ref, '/') > 0 AND (SELECT true FROM line l WHERE l.parked_on = c.ref LIMIT 1);
    RETURN _taken;
END $$;

-- Puts jobs aside that wait for a key. Its row is locked first: whoever frees a slot of that key waits for the row, and then finds
-- them. A row that somebody else has is not waited for; then they stay in line, and are put aside another time.
CREATE OR REPLACE FUNCTION put_aside(_seqs bigint[], _keys text[], _most integer[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _locked text[];
BEGIN
    IF 0 = ANY (_most) THEN
        INSERT INTO slots (ref, used, most)
            SELECT DISTINCT p.ref, 0, 0 FROM unnest(_keys, _most) p (ref, most) WHERE p.most = 0 ORDER BY p.ref ON CONFLICT DO NOTHING;
    END IF;
    SELECT array_agg(s.ref) INTO _locked FROM (SELECT DISTINCT p.ref, p.most FROM unnest(_keys, _most) p (ref, most)) k
        CROSS JOIN LATERAL (SELECT x.ref FROM slots x WHERE x.ref = k.ref AND x.share = 0 AND x.used >= k.most FOR UPDATE SKIP LOCKED) s;
    SELECT array_agg(p.seq), array_agg(p.ref) INTO _seqs, _keys FROM unnest(_seqs, _keys) p (seq, ref) WHERE p.ref = ANY (_locked);
    UPDATE line l SET parked_on = p.ref FROM unnest(_seqs, _keys) p (seq, ref) WHERE l.seq = ANY (ARRAY[p.seq]);
    -- They leave the line without their slots: behind them, at their other keys, somebody may be next.
    PERFORM let_in(n.ref, 1) FROM limited_needs(_seqs) n WHERE strpos(n.ref, '/') > 0 AND n.ref <> _keys[n.i];
END $$;

-- Counts what was taken and freed, row by row in the order of the references, as they are given, and looks whether there was
-- room: answers with the keys that have more taken now than they have slots, and how many. Of other references it fails.
-- `_shares` says how many rows each has; none, if it has none yet.
--
-- Those that have several come last, and nobody waits there: who finds too few rows that are free begins anew, and is patient
-- then. So whoever waits for one of these rows waits for somebody who has all others that it needs.
CREATE OR REPLACE FUNCTION change_slots(_refs text[], _delta integer[], _most integer[], _shares integer[])
RETURNS TABLE (lost text, over integer) LANGUAGE plpgsql AS $$
DECLARE
    _made text[] := '{}'; _ones text[]; _here text[]; _here_delta integer[]; _here_most integer[]; _counted integer; _wide record; _lost text; _over text[]; _by integer[];
    _patient boolean := coalesce(current_setting('qo.patient', true) = 'on', false);
BEGIN
    IF _refs IS NULL THEN RETURN; END IF;
    IF 0 = ANY (_shares) THEN
        -- First all rows that are new, then those that were there, or that somebody made since we looked. Nobody who has a row
        -- that was there waits for one that is new.
        WITH made AS (
            INSERT INTO slots (ref, used, most)
            SELECT c.ref, c.delta, c.most FROM unnest(_refs, _delta, _most, _shares) c (ref, delta, most, shares) WHERE c.shares = 0
            ON CONFLICT DO NOTHING RETURNING ref
        )
        SELECT coalesce(array_agg(m.ref), '{}') INTO _made FROM made m;
    END IF;
    -- Then keys of one slot which is free again: they need no row. Nobody but who has that slot waits for such a row.
    SELECT array_agg(c.ref) INTO _ones FROM unnest(_refs, _delta, _most, _shares) c (ref, delta, most, shares)
        WHERE c.shares = 1 AND c.most = 1 AND c.delta = -1 AND strpos(c.ref, '/') > 0;
    IF _ones IS NOT NULL THEN
        WITH gone AS (
            DELETE FROM slots s USING unnest(_ones) c (ref) WHERE s.ref = ANY (ARRAY[c.ref]) AND s.used = 1 RETURNING s.ref
        )
        SELECT _made || coalesce(array_agg(g.ref), '{}') INTO _made FROM gone g;
    END IF;
    -- Then all others, in this order, one by one.
    SELECT array_agg(c.ref ORDER BY c.i), array_agg(c.delta ORDER BY c.i), array_agg(c.most ORDER BY c.i) INTO _here, _here_delta, _here_most
    FROM unnest(_refs, _delta, _most, _shares) WITH ORDINALITY c (ref, delta, most, shares, i)
    WHERE c.shares <= 1 AND c.ref NOT IN (SELECT unnest(_made));
    WITH counted AS (
        UPDATE slots s SET used = s.used + c.delta FROM unnest(_here, _here_delta, _here_most) c (ref, delta, most)
        WHERE s.ref = ANY (ARRAY[c.ref])
        RETURNING s.ref, CASE WHEN c.delta > 0 AND s.used > c.most THEN s.used - c.most END AS over
    )
    SELECT count(*), coalesce(array_agg(c.ref) FILTER (WHERE c.over > 0), '{}'), coalesce(array_agg(c.over) FILTER (WHERE c.over > 0), '{}'),
           min(c.ref) FILTER (WHERE c.over > 0 AND strpos(c.ref, '/') = 0)
    INTO _counted, _over, _by, _lost FROM counted c;
    FOR _wide IN SELECT * FROM unnest(_refs, _delta, _shares) c (ref, delta, shares) WHERE c.shares > 1 LOOP
        _counted := _counted + 1;
        EXIT WHEN _lost IS NOT NULL;
        IF count_in_shares(_wide.ref, _wide.delta, _patient) <> 0 THEN _lost := _wide.ref; END IF;
    END LOOP;
    IF _lost IS NOT NULL OR cardinality(_made) + _counted <> cardinality(_refs) THEN
        RAISE EXCEPTION 'somebody else took slots of % at the same moment', coalesce(_lost, _refs[1]) USING ERRCODE = '40001';
    END IF;
    RETURN QUERY SELECT * FROM unnest(_over, _by);
END $$;

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
    _granted bigint[]; _attempts integer[]; _timeouts bigint[]; _retries jsonb[]; _unusual boolean; _bytes bigint;
BEGIN
    PERFORM check_isolation();
    PERFORM pg_advisory_xact_lock_shared(turn_key());
    _now := store_time();
    SELECT * INTO _session FROM session s WHERE s.session = _id FOR UPDATE;
    -- On a server whose clock is behind that of the one before it, a session goes on from where it was.
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
    IF NOT EXISTS (SELECT FROM gate) THEN _taken := claim_unlimited(_session, _max, _per_queue); END IF;
    FOR _try IN 1 .. 5 LOOP
        EXIT WHEN _taken IS NOT NULL;
        BEGIN
            _taken := claim_shared(_session, _max, _per_queue, _settled.freed_refs, _settled.freed, _settled.freed_most);
        EXCEPTION WHEN serialization_failure THEN
            -- Somebody else took what it counted on. What was settled stays; the claim is made anew, patiently.
            IF _try = 5 THEN
                RAISE EXCEPTION 'others were always faster' USING ERRCODE = 'QOALO';
            END IF;
            PERFORM set_config('qo.patient', 'on', true);
        END;
    END LOOP;
    IF EXISTS (SELECT FROM early) THEN
        -- What somebody else is removing is not waited for; it goes when the fronts move.
        DELETE FROM early e WHERE e.ctid = ANY (ARRAY(SELECT x.ctid FROM early x WHERE x.seq = ANY (_taken) FOR UPDATE SKIP LOCKED));
    END IF;
    SELECT CASE WHEN max(g.attempt) > 1 THEN array_agg(g.attempt) END, CASE WHEN count(g.timeout_ms) > 0 THEN array_agg(g.timeout_ms) END,
           CASE WHEN count(g.retry) > 0 THEN array_agg(g.retry) END, bool_or(g.unusual), sum(g.bytes)
    INTO _attempts, _timeouts, _retries, _unusual, _bytes FROM (
        SELECT j.attempts_used + 1 AS attempt, coalesce(j.timeout_ms, (k.options->>'timeout_ms')::bigint) AS timeout_ms,
               coalesce(j.retry, nullif(k.options->'retry', 'null')) AS retry,
               j.workflow IS NOT NULL OR is_over(j.good_until, _now) AS unusual, octet_length(j.payload) AS bytes
        FROM unnest(_taken) WITH ORDINALITY t (seq, n)
        CROSS JOIN LATERAL (SELECT * FROM job x WHERE x.seq = t.seq OFFSET 0) j
        LEFT JOIN LATERAL (SELECT * FROM task x WHERE x.task = j.task OFFSET 0) k ON true
        ORDER BY t.n) g;
    -- What we took may have come with something unusual after we looked: a limit of its own, a big job, a moment by which it
    -- is over.
    IF _taken IS NULL OR _unusual OR _bytes >= 8388608 OR cardinality(_taken) > 0 AND must_be_alone(_now, _id) THEN
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
    -- Others go on from where the clock was a second ago at the latest. Whoever records it does not keep the others waiting.
    PERFORM FROM clock c WHERE c.latest <= _now - 1000 FOR UPDATE SKIP LOCKED;
    IF FOUND THEN UPDATE clock SET latest = _now; END IF;
    SELECT array_agg(nextval('fence_token')) INTO _granted FROM generate_subscripts(_taken, 1);
    INSERT INTO hold (seq, state, session, worker, token, since, until)
        SELECT g.seq, 'running', _id, _session.worker, g.token, _now, _now + g.timeout_ms + 10000
        FROM unnest(_taken, _granted, _timeouts) g (seq, token, timeout_ms);
    UPDATE session s SET number = _number, lease_until = _now + s.lease_ms, draining = false,
        free_permits = greatest(_free_permits - cardinality(_taken), 0), reply = NULL, reply_now = _now,
        reply_succeeded = cardinality(_settled.settled),
        reply_settled = CASE WHEN EXISTS (SELECT FROM unnest(_settled.settled) r WHERE r <> 'succeeded') THEN _settled.settled END,
        reply_seqs = _taken, reply_tokens = _granted, reply_attempts = _attempts,
        reply_timeouts = _timeouts, reply_retries = _retries
        WHERE s.session = _id RETURNING s.lease_until INTO _lease_until;
    RETURN QUERY
        SELECT 0, 0::bigint, NULL::uuid, NULL::bigint, NULL, NULL::integer, NULL::integer, NULL, NULL, NULL, NULL, NULL, NULL::bigint, NULL, _now, _lease_until
        UNION ALL
        SELECT 1, r.n, NULL, NULL, r.r, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
            FROM unnest(_settled.settled) WITH ORDINALITY r (r, n)
        UNION ALL
        SELECT 2, c.n, j.id, c.token, NULL, coalesce(c.attempt, 1), j.max_attempts, j.queue, j.task, j.grp, j.key, j.payload, c.timeout_ms,
               c.retry::text, NULL, NULL
            FROM unnest(_taken, _granted, _attempts, _timeouts, _retries) WITH ORDINALITY c (seq, token, attempt, timeout_ms, retry, n)
            CROSS JOIN LATERAL (SELECT * FROM job x WHERE x.seq = c.seq OFFSET 0) j;
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
            FOR _job IN SELECT l.seq, j.workflow FROM line l CROSS JOIN LATERAL (SELECT x.workflow FROM job x WHERE x.seq = l.seq OFFSET 0) j
                WHERE l.parked_on IS NULL AND l.queue = _lane.queue AND l.lane = _lane.lane
                  AND (l.priority, l.run_at, l.seq) >= (_lane.priority, _lane.run_at, _lane.seq)
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
CREATE OR REPLACE FUNCTION next_date(_now bigint, _id uuid) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN least(
        (SELECT l.run_at FROM line l WHERE l.parked_on = '@' AND l.run_at > _now
            AND is_its_turn((SELECT j.workflow FROM job j WHERE j.seq = l.seq), l.seq) ORDER BY l.run_at LIMIT 1),
        (SELECT j.good_until FROM job j WHERE j.good_until > _now AND (SELECT true FROM line l WHERE l.seq = j.seq)
            ORDER BY j.good_until LIMIT 1),
        (SELECT s.lease_until FROM session s WHERE s.lease_until > _now AND s.session <> _id ORDER BY s.lease_until LIMIT 1),
        (SELECT h.until FROM hold h WHERE h.until > _now ORDER BY h.until LIMIT 1),
        (SELECT p.until FROM program p WHERE p.until > _now ORDER BY p.until LIMIT 1),
        (SELECT s.next FROM schedule s WHERE s.next > _now ORDER BY s.next LIMIT 1));
END $$;
