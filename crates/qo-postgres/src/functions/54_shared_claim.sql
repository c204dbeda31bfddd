-- Claims beside others.
--
-- 1. The claim finds the next jobs in line and plans with the slots that it sees, without a lock.
-- 2. Jobs that lack room are left out, and the claim reads on behind them. If many lack room at their keys, it goes
--    along the classes instead and parks them (`claim_along_classes`).
-- 3. It locks and changes the rows of `slots` whose sum changes (53_slots.sql). Where as much is freed as is taken, no
--    row is touched.
-- 4. If a key has less room than planned, its jobs stay in line and the others run (`withdraw_blocked`). If a group has
--    less room, the claim fails with 40001, and the exchange retries it.
--
-- Helpers: `contend`, `refuse_several_keys` (51_needs.sql), `head_of_line`, `heads_of_classes` (52_line.sql),
-- `change_slots`, `withdraw_blocked`, `park` (53_slots.sql). QOALO: the exchange must run alone
-- (82_shared_exchange.sql).

-- Claims for a session, together with what its settles have freed. Returns jobs in claim order; a job that another
-- transaction unlocked meanwhile may come later than its place. Fails with QOALO if the exchange must run alone.
CREATE OR REPLACE FUNCTION claim_shared(
    _session session, _max integer, _max_claim_batch integer, _freed_refs text[], _freed integer[], _freed_most integer[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    _found bigint[] := '{}'; _new bigint[]; _passed bigint[] := '{}'; _whole boolean := true;
    _filled text[] := '{}'; _full text[] := '{}'; _keys boolean := true; _missing integer := greatest(_max, 0);
    _head record; _ended boolean := false; _scarce text[]; _room integer[]; _blocked bigint[]; _new_full text[]; _at_keys integer := 0;
    -- Of every reference: slots wanted and freed, the limit; and slots in use and number of rows, where the claim has
    -- looked.
    _refs text[] := _freed_refs; _want integer[] := array_fill(0, ARRAY[cardinality(_freed_refs)]); _back integer[] := _freed;
    _most integer[] := _freed_most; _used bigint[]; _shares integer[]; _uncounted text[];
BEGIN
    -- A key that has room again wakes its next jobs.
    PERFORM wake_first(f.ref, f.freed) FROM unnest(_freed_refs, _freed) f (ref, freed)
        WHERE strpos(f.ref, '/') > 0 AND (SELECT true FROM line l WHERE l.parked_on = f.ref LIMIT 1);
    IF _missing > 0 THEN
        -- Groups that are full, and stay so because this exchange frees nothing of them: their classes are left out.
        SELECT coalesce(array_agg(f.ref), '{}') INTO _filled FROM (
            SELECT s.ref FROM slots s WHERE s.is_full GROUP BY s.ref HAVING count(*) = max(s.shares)
            UNION ALL SELECT g.ref FROM effective_limit g WHERE g.declared = 0 OR g.declared IS NULL AND g.submit = 0) f;
        _full := CASE WHEN _filled = '{}' THEN _filled ELSE ARRAY(SELECT f FROM unnest(_filled) f WHERE f NOT IN (SELECT unnest(_freed_refs))) END;
        _keys := coalesce((SELECT true FROM effective_limit g WHERE strpos(g.ref, '/') > 0 ORDER BY g.ref LIMIT 1), false);
    END IF;
    SELECT '{}'::bigint[] AS seqs, '{}'::text[] AS queues, '{}'::text[] AS classes, true AS whole, NULL::place AS until INTO _head;
    FOR _round IN 1 .. 8 LOOP
        _new := '{}';
        IF _missing > 0 THEN
            SELECT * INTO _head FROM head_of_line(_session, _missing, _max_claim_batch, _full, _head.until) h;
            _whole := _head.whole;
            _ended := _round > 1 AND cardinality(_head.seqs) = 0;
            EXIT WHEN _ended;
            _new := _head.seqs;
            _found := _found || _new;
        END IF;
        -- Slots in use are read once for each reference, when it is first met.
        SELECT array_agg(a.ref), array_agg(a.want + a.fresh), array_agg(a.freed), array_agg(a.most), array_agg(a.used), array_agg(a.shares),
               coalesce(array_agg(a.ref) FILTER (WHERE a.fresh > a.room), '{}'), coalesce(array_agg(a.room) FILTER (WHERE a.fresh > a.room), '{}')
        INTO _refs, _want, _back, _most, _used, _shares, _scarce, _room
        FROM (
            SELECT z.ref, z.want, z.fresh, z.freed, z.most, k.used, k.shares,
                   CASE WHEN k.used IS NULL THEN z.fresh ELSE greatest(z.most - k.used + z.freed - z.want, 0) END::integer AS room
            FROM (
                -- A group that is not full, of which as much is freed as taken, has room: its rows are not read.
                SELECT x.*, x.used IS NULL AND (x.want + x.fresh <> x.freed OR strpos(x.ref, '/') > 0 OR x.ref = ANY (_filled)) AS asks
                FROM (
                    SELECT y.ref, sum(y.want)::integer AS want, sum(y.fresh)::integer AS fresh, sum(y.freed)::integer AS freed,
                           max(y.most) AS most, max(y.used) AS used, max(y.shares) AS shares
                    FROM (
                        SELECT n.ref, 0 AS want, n.slots AS fresh, 0 AS freed, n.most, NULL::bigint AS used, NULL::integer AS shares
                        FROM limited_sums_of(_new) n WHERE _keys
                        UNION ALL SELECT n.ref, 0, n.slots, 0, n.most, NULL, NULL
                        FROM limited_sums_of_classes(_head.queues, _head.classes) n WHERE NOT _keys
                        UNION ALL SELECT r.ref, r.want, 0, r.freed, r.most, r.used, r.shares
                        FROM unnest(_refs, _want, _back, _most, _used, _shares) r (ref, want, freed, most, used, shares)
                    ) y GROUP BY y.ref
                ) x
            ) z CROSS JOIN LATERAL (
                SELECT sum(s.used) AS used, max(s.shares) AS shares FROM slots s WHERE z.asks AND s.ref = z.ref OFFSET 0) u
            CROSS JOIN LATERAL (
                SELECT CASE WHEN z.asks THEN coalesce(u.used, 0) ELSE z.used END AS used,
                       CASE WHEN z.asks THEN coalesce(u.shares, 0) ELSE z.shares END AS shares) k
        ) a;
        IF cardinality(_scarce) > 0 THEN
            -- Leave out the jobs that lack room, and look for others. If many lack room at their keys,
            -- `claim_along_classes` parks them.
            EXIT WHEN _max_claim_batch IS NOT NULL;
            SELECT c.blocked, c.full_groups, _at_keys + cardinality(array_remove(c.lacks, NULL)) INTO _blocked, _new_full, _at_keys
                FROM contend(_new, _scarce, _room) c;
            EXIT WHEN _at_keys > 5 + _max / 100;
            IF _at_keys > 0 THEN PERFORM refuse_several_keys(_blocked); END IF;
            _passed := _passed || _blocked;
            _full := _full || _new_full;
            SELECT array_agg(g.want ORDER BY g.i) INTO _want FROM (
                SELECT y.ref, sum(y.want)::integer AS want, max(y.i) AS i FROM (
                    SELECT r.ref, r.want, r.i FROM unnest(_refs, _want) WITH ORDINALITY r (ref, want, i)
                    UNION ALL SELECT n.ref, -n.slots, NULL FROM limited_sums_of(_blocked) n
                ) y GROUP BY y.ref) g;
        END IF;
        _missing := _max - cardinality(_found) + cardinality(_passed);
        _ended := _missing <= 0 OR cardinality(_scarce) = 0;
        EXIT WHEN _ended;
    END LOOP;
    IF NOT _ended OR _missing > 0 AND (NOT _whole OR _max_claim_batch IS NOT NULL) THEN
        -- Jobs lack room, or the line may have more.
        RETURN claim_along_classes(_session, _max, _max_claim_batch, _freed_refs, _freed, _freed_most, _found, _full);
    END IF;
    -- The usual case: all jobs at the head of the line may run, or nearly all.
    IF cardinality(_passed) > 0 THEN _found := without(_found, _passed); END IF;
    SELECT array_agg(c.ref), array_agg(c.want), array_agg(c.freed), array_agg(c.most), array_agg(c.shares)
    INTO _refs, _want, _back, _most, _shares
    FROM (SELECT x.ref, x.want, x.freed, x.most,
                 coalesce(x.shares, (SELECT y.shares FROM slots y WHERE y.ref = x.ref AND y.share = 0), 0) AS shares
          FROM unnest(_refs, _want, _back, _most, _shares) x (ref, want, freed, most, shares)
          WHERE x.want <> x.freed ORDER BY x.ref COLLATE "C") c;
    IF _refs IS NOT NULL THEN
        SELECT array_agg(c.lost), array_agg(w.want - c.over), coalesce(array_agg(c.lost) FILTER (WHERE NOT c.counted), '{}')
        INTO _scarce, _room, _uncounted
            FROM change_slots(_refs, ARRAY(SELECT c.want - c.freed FROM unnest(_want, _back) WITH ORDINALITY c (want, freed, i) ORDER BY c.i), _most, _shares) c
            JOIN unnest(_refs, _want) w (ref, want) ON w.ref = c.lost;
        IF _scarce IS NOT NULL THEN _found := withdraw_blocked(_found, _scarce, _room, _uncounted); END IF;
        -- Another claim may have parked jobs on a key while this one waited for its row.
        PERFORM wake_first(c.ref, c.freed - c.want) FROM unnest(_refs, _want, _back) c (ref, want, freed)
            WHERE c.want < c.freed AND strpos(c.ref, '/') > 0 AND (SELECT true FROM line l WHERE l.parked_on = c.ref LIMIT 1);
    END IF;
    DELETE FROM line l WHERE l.seq = ANY (_found);
    RETURN _found;
END $$;

-- `claim_shared` for a namespace in which no group has a limit: no slots are counted, so it cannot fail.
CREATE OR REPLACE FUNCTION claim_unlimited(_session session, _max integer, _max_claim_batch integer) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE _taken bigint[]; _whole boolean; _given text[] := '{}'; _seqs bigint[];
BEGIN
    IF _max <= 0 THEN RETURN '{}'; END IF;
    SELECT h.seqs, h.whole INTO _taken, _whole FROM head_of_line(_session, _max, _max_claim_batch, '{}', NULL) h;
    DELETE FROM line l WHERE l.seq = ANY (_taken);
    WHILE NOT _whole AND cardinality(_taken) < _max LOOP
        IF _max_claim_batch IS NOT NULL THEN
            _given := ARRAY(SELECT j.queue FROM job j WHERE j.seq = ANY (_taken));
        END IF;
        _seqs := heads_of_classes(_session, _max - cardinality(_taken), _max_claim_batch, _given, '{}', '{}');
        EXIT WHEN cardinality(_seqs) = 0;
        DELETE FROM line l WHERE l.seq = ANY (_seqs);
        _taken := _taken || _seqs;
    END LOOP;
    RETURN _taken;
END $$;

-- `claim_shared`, class by class, beginning with `_seqs`. Of the references that are met, sorted: `_most` is the limit,
-- `_room` what is left, `_delta` what changes.
CREATE OR REPLACE FUNCTION claim_along_classes(
    _session session, _max integer, _max_claim_batch integer, _freed_refs text[], _freed integer[], _freed_most integer[],
    _seqs bigint[], _full text[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    _taken bigint[] := '{}'; _now_taken bigint[]; _given text[] := '{}'; _passed bigint[] := '{}'; _round integer := 0; _left integer;
    _refs text[]; _most integer[]; _room integer[]; _delta integer[]; _shares integer[];
    _scarce text[]; _scarce_most integer[]; _scarce_room integer[]; _contest record; _blocked bigint[]; _known integer;
    _parked bigint[] := '{}'; _parked_on text[] := '{}'; _parked_most integer[] := '{}';
BEGIN
    SELECT array_agg(f.ref), array_agg(f.most), array_agg((f.most - used_now(f.ref) + f.freed)::integer), array_agg(-f.freed)
    INTO _refs, _most, _room, _delta FROM unnest(_freed_refs, _freed, _freed_most) f (ref, freed, most);
    WHILE _max > cardinality(_taken) LOOP
        _round := _round + 1;
        _left := _max - cardinality(_taken);
        IF _round > 1 OR cardinality(_seqs) = 0 THEN
            -- 12 rounds park enough for one exchange; the next exchange continues behind the parked jobs.
            EXIT WHEN _round > 12;
            -- If jobs at the head lack room, look at more than are wanted.
            _seqs := heads_of_classes(_session, greatest(_left, least(500, 2 * cardinality(_passed))), _max_claim_batch, _given, _full, _passed);
            EXIT WHEN cardinality(_seqs) = 0;
        END IF;
        -- References that have less room than the jobs want.
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
            IF _max_claim_batch IS NOT NULL AND cardinality(_contest.blocked) > 0 THEN
                -- Of each queue the list has at most `_max_claim_batch` jobs. If one of them lacks room, the queue's
                -- next job takes its place, which lies behind the queue's last job in the list. So jobs after that one
                -- are not known to be next.
                SELECT min(q.last) INTO _known
                FROM (
                    SELECT l.queue, max(s.i)::integer AS last, count(*) AS listed, bool_or(s.seq = ANY (_contest.blocked)) AS lacks
                    FROM unnest(_seqs) WITH ORDINALITY s (seq, i)
                    CROSS JOIN LATERAL (SELECT x.queue FROM line x WHERE x.seq = s.seq OFFSET 0) l GROUP BY l.queue
                ) q
                WHERE q.lacks AND q.listed >= _max_claim_batch - (SELECT count(*) FROM unnest(_given) g WHERE g = q.queue);
                IF _known < cardinality(_seqs) THEN
                    _seqs := _seqs[1:_known];
                    SELECT * INTO _contest FROM contend(_seqs, _scarce, _scarce_room);
                END IF;
            END IF;
            _blocked := _contest.blocked;
            PERFORM refuse_several_keys(_blocked);
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
        IF _max_claim_batch IS NOT NULL THEN
            _given := _given || ARRAY(SELECT l.queue FROM line l WHERE l.seq = ANY (_now_taken));
        END IF;
        DELETE FROM line l WHERE l.seq = ANY (_now_taken);
        _taken := _taken || _now_taken;
    END LOOP;

    SELECT array_agg(c.ref), array_agg(c.delta), array_agg(c.most), array_agg(coalesce((SELECT s.shares FROM slots s WHERE s.ref = c.ref AND s.share = 0), 0))
    INTO _refs, _delta, _most, _shares
    FROM (SELECT r.* FROM unnest(_refs, _delta, _most) r (ref, delta, most) WHERE r.delta <> 0 ORDER BY r.ref COLLATE "C") c;
    IF EXISTS (SELECT FROM change_slots(_refs, _delta, _most, _shares)) THEN
        RAISE EXCEPTION 'another transaction took slots of a key meanwhile' USING ERRCODE = '40001';
    END IF;
    IF cardinality(_parked) > 0 THEN PERFORM park(_parked, _parked_on, _parked_most); END IF;
    PERFORM wake_first(c.ref, -c.delta) FROM unnest(_refs, _delta) c (ref, delta)
        WHERE c.delta < 0 AND strpos(c.ref, '/') > 0 AND (SELECT true FROM line l WHERE l.parked_on = c.ref LIMIT 1);
    RETURN _taken;
END $$;
