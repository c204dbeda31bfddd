-- Groups, their limits, and the slots that jobs and programs take of them. Joins are written as 82_shared_exchange.sql
-- says.

-- GROUP/*, for a reference with a key; NULL for others.
CREATE OR REPLACE FUNCTION every_key(_ref text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN strpos(_ref, '/') > 0 THEN split_part(_ref, '/', 1) || '/*' END
$$;

-- The order in which references are listed: cluster, queues, then groups, each before its keys.
CREATE OR REPLACE FUNCTION listing_order(_ref text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT (CASE
        WHEN _ref = 'cluster' THEN '0'
        WHEN _ref LIKE 'queue:%' THEN '1' || substr(_ref, 7)
        WHEN strpos(_ref, '/') = 0 THEN '2' || _ref || E'\x01' || '0'
        WHEN _ref = every_key(_ref) THEN '2' || split_part(_ref, '/', 1) || E'\x01' || '1'
        ELSE '2' || split_part(_ref, '/', 1) || E'\x01' || '2' || substr(_ref, strpos(_ref, '/') + 1)
    END) COLLATE "C"
$$;

-- The limit of a reference that counts, and its source.
CREATE OR REPLACE FUNCTION limit_and_source(_ref text) RETURNS TABLE (slots integer, source text)
LANGUAGE sql STABLE AS $$
    SELECT s.slots, s.source FROM (
        SELECT 1 AS place, l.operator AS slots, 'operator' AS source FROM limits l WHERE l.ref = _ref
        UNION ALL SELECT 2, l.config, 'config' FROM limits l WHERE l.ref = _ref
        UNION ALL SELECT 3, (SELECT c.slots FROM code_limit c WHERE c.grp = _ref ORDER BY c.n DESC LIMIT 1), 'code'
        UNION ALL SELECT 4, l.operator, 'operator' FROM limits l WHERE l.ref = every_key(_ref)
        UNION ALL SELECT 5, l.config, 'config' FROM limits l WHERE l.ref = every_key(_ref)
        UNION ALL SELECT 6, (SELECT b.slots FROM submit_limit b WHERE b.ref = _ref ORDER BY b.n DESC LIMIT 1), 'submit'
    ) s WHERE s.slots IS NOT NULL ORDER BY s.place LIMIT 1
$$;

-- The same without the source, from `effective_limit`. A submit-side limit counts here even before it has been counted.
CREATE OR REPLACE FUNCTION limit_of(_ref text) RETURNS integer LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce((SELECT g.declared FROM effective_limit g WHERE g.ref = _ref),
                    (SELECT p.declared FROM effective_limit p WHERE p.ref = every_key(_ref)),
                    (SELECT b.slots FROM submit_limit b WHERE b.ref = _ref ORDER BY b.n DESC LIMIT 1));
END $$;

-- Writes the effective limit of a reference, after one of its sources has changed.
CREATE OR REPLACE FUNCTION set_effective_limit(_ref text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _declared integer; _submit integer;
BEGIN
    SELECT coalesce(
        (SELECT coalesce(l.operator, l.config) FROM limits l WHERE l.ref = _ref),
        (SELECT c.slots FROM code_limit c WHERE c.grp = _ref ORDER BY c.n DESC LIMIT 1)) INTO _declared;
    SELECT b.slots INTO _submit FROM submit_limit b WHERE b.ref = _ref ORDER BY b.n DESC LIMIT 1;
    IF _declared IS NULL AND _submit IS NULL THEN
        DELETE FROM effective_limit g WHERE g.ref = _ref;
        IF FOUND AND (strpos(_ref, '/') = 0 OR _ref = every_key(_ref)) THEN PERFORM forget_total(_ref, NULL); END IF;
    ELSE
        INSERT INTO effective_limit (ref, declared, submit) VALUES (_ref, _declared, _submit)
            ON CONFLICT (ref) DO UPDATE SET declared = excluded.declared, submit = excluded.submit;
    END IF;
END $$;

-- The limit of a reference as it would be after a job or program brings a submit-side limit: a number sets it, -1
-- clears it, NULL leaves it.
CREATE OR REPLACE FUNCTION limit_with(_ref text, _submit_limit integer) RETURNS integer LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT CASE WHEN f.source IS NULL OR f.source = 'submit' THEN nullif(coalesce(_submit_limit, f.slots), -1) ELSE f.slots END
        FROM (SELECT 1) one LEFT JOIN limit_and_source(_ref) f ON true);
END $$;

-- The slots that a job takes, in the order in which its groups are checked.
CREATE OR REPLACE FUNCTION needs(_grp text, _key text, _cost integer, _limits jsonb, _queue text)
RETURNS TABLE (place integer, ref text, slots integer) LANGUAGE sql IMMUTABLE AS $$
    SELECT (row_number() OVER (ORDER BY n.place, split_part(n.ref, '/', 1) COLLATE "C", n.ref COLLATE "C"))::integer,
           n.ref COLLATE "C", n.slots
    FROM (
        SELECT 1 AS place, _grp || '/' || _key AS ref, _cost AS slots WHERE _key IS NOT NULL
        UNION ALL SELECT 2, _grp, _cost
        UNION ALL SELECT 3, e.key, e.value::integer FROM jsonb_each_text(coalesce(_limits, '{}')) e
        UNION ALL SELECT 4, 'queue:' || _queue, 1
        UNION ALL SELECT 5, 'cluster', 1
    ) n ORDER BY 1
$$;

CREATE OR REPLACE FUNCTION needs_of(_job job) RETURNS TABLE (place integer, ref text, slots integer)
LANGUAGE sql IMMUTABLE AS $$
    SELECT * FROM needs(_job.grp, _job.key, _job.cost, _job.limits, _job.queue)
$$;

-- The slots that a program takes: of its key, if any, and of its group.
CREATE OR REPLACE FUNCTION needs_of(_program program) RETURNS TABLE (place integer, ref text, slots integer)
LANGUAGE sql IMMUTABLE AS $$
    SELECT v.place, v.ref COLLATE "C", _program.slots
    FROM (VALUES (1, _program.ref), (2, split_part(_program.ref, '/', 1))) v (place, ref)
    WHERE v.place = 1 OR strpos(_program.ref, '/') > 0
$$;

-- The slots that a job takes of a reference; of GROUP/*, those of all keys.
CREATE OR REPLACE FUNCTION slots_of(_job job, _ref text) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN _ref = 'cluster' OR _ref = 'queue:' || _job.queue THEN 1
        WHEN _ref = _job.grp OR _ref = _job.grp || '/' || _job.key THEN _job.cost
        WHEN _ref LIKE '%/*' AND _ref = every_key(_ref) THEN
            CASE WHEN _job.key IS NOT NULL AND _ref = _job.grp || '/*' THEN _job.cost ELSE 0 END
            + coalesce((SELECT sum(e.value::integer) FROM jsonb_each_text(_job.limits) e
                        WHERE every_key(e.key) = _ref), 0)::integer
        ELSE coalesce((_job.limits->>_ref)::integer, 0) END
$$;

CREATE OR REPLACE FUNCTION slots_of(_program program, _ref text) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN _ref = _program.ref OR _ref = split_part(_program.ref, '/', 1) OR _ref = every_key(_program.ref)
        THEN _program.slots ELSE 0 END
$$;

-- Live jobs that take slots of a reference, by index.
CREATE OR REPLACE FUNCTION jobs_of(_ref text) RETURNS SETOF job LANGUAGE plpgsql STABLE AS $$
DECLARE _name text := split_part(_ref, '/', 1);
BEGIN
    IF _ref = 'cluster' THEN
        RETURN QUERY SELECT j.* FROM job j;
    ELSIF _ref LIKE 'queue:%' THEN
        RETURN QUERY SELECT j.* FROM job j WHERE j.queue = substr(_ref, 7);
    ELSIF _ref = every_key(_ref) THEN
        RETURN QUERY SELECT j.* FROM job j WHERE j.grp = _name AND j.key IS NOT NULL
            UNION SELECT j.* FROM extra_limit e CROSS JOIN LATERAL (SELECT * FROM job x WHERE x.seq = e.seq OFFSET 0) j
                  WHERE e.ref > _name || '/' AND e.ref < _name || '0';
    ELSIF strpos(_ref, '/') > 0 THEN
        RETURN QUERY SELECT j.* FROM job j WHERE j.grp = _name AND j.key = substr(_ref, strpos(_ref, '/') + 1)
            UNION ALL SELECT j.* FROM extra_limit e CROSS JOIN LATERAL (SELECT * FROM job x WHERE x.seq = e.seq OFFSET 0) j
                WHERE e.ref = _ref;
    ELSE
        RETURN QUERY SELECT j.* FROM job j WHERE j.grp = _ref
            UNION ALL SELECT j.* FROM extra_limit e CROSS JOIN LATERAL (SELECT * FROM job x WHERE x.seq = e.seq OFFSET 0) j
                WHERE e.ref = _ref;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION programs_of(_ref text) RETURNS SETOF program LANGUAGE sql STABLE AS $$
    SELECT p.* FROM program p WHERE slots_of(p, _ref) > 0
$$;

-- The limit that `slots` is counted against: a submit-side limit only once `count_new_limits` has counted it.
CREATE OR REPLACE FUNCTION counted_limit(_ref text) RETURNS integer LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce((SELECT g.declared FROM effective_limit g WHERE g.ref = _ref),
                    (SELECT p.declared FROM effective_limit p WHERE p.ref = every_key(_ref)),
                    (SELECT g.submit FROM effective_limit g WHERE g.ref = _ref));
END $$;

-- Slots in use, counted from jobs and programs: what the cache in `slots` must equal.
CREATE OR REPLACE FUNCTION used_by_holders(_ref text) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce((SELECT sum(slots_of(j.job, _ref)) FROM owned_job h
            CROSS JOIN LATERAL (SELECT x AS job FROM job x WHERE x.seq = h.seq OFFSET 0) j
            WHERE h.state = 'running'), 0)
         + coalesce((SELECT sum(slots_of(p, _ref)) FROM program p), 0);
END $$;

-- Slots in use of a reference that has a limit. While a submit-side limit is not counted yet, `slots` has no row for
-- it.
CREATE OR REPLACE FUNCTION used(_ref text) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN CASE WHEN EXISTS (SELECT FROM submit_limit b WHERE b.ref = _ref AND NOT b.counted) THEN used_by_holders(_ref)
        ELSE (SELECT coalesce(sum(s.used), 0) FROM slots s WHERE s.ref = _ref) END;
END $$;

-- The same, from `slots` alone.
CREATE OR REPLACE FUNCTION used_now(_ref text) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT coalesce(sum(s.used), 0) FROM slots s WHERE s.ref = _ref);
END $$;

-- Slots that claimed jobs will need.
CREATE OR REPLACE FUNCTION claimed(_ref text) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT coalesce(sum(slots_of(j.job, _ref)), 0) FROM owned_job h
        CROSS JOIN LATERAL (SELECT x AS job FROM job x WHERE x.seq = h.seq OFFSET 0) j
        WHERE h.state = 'claimed');
END $$;

-- Whether a live job or program takes slots of a group or key: a submit-side limit stays that long.
CREATE OR REPLACE FUNCTION is_live(_ref text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE _name text := split_part(_ref, '/', 1);
BEGIN
    IF strpos(_ref, '/') > 0 THEN
        IF EXISTS (SELECT FROM job j WHERE j.grp = _name AND j.key = substr(_ref, strpos(_ref, '/') + 1)) THEN RETURN true; END IF;
    ELSIF EXISTS (SELECT FROM job j WHERE j.grp = _ref) THEN
        RETURN true;
    END IF;
    RETURN EXISTS (SELECT FROM extra_limit e WHERE e.ref = _ref) OR EXISTS (SELECT FROM programs_of(_ref));
END $$;

-- Free slots of a reference that has a limit. With `_ahead`, slots that claimed jobs will need are not free.
CREATE OR REPLACE FUNCTION free(_ref text, _limit integer, _ahead boolean) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN greatest(_limit - used(_ref) - CASE WHEN _ahead THEN claimed(_ref) ELSE 0 END, 0);
END $$;

CREATE OR REPLACE FUNCTION has_room(_ref text, _slots integer, _ahead boolean) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE _limit integer := limit_of(_ref);
BEGIN
    IF _limit IS NULL THEN RETURN true; END IF;
    RETURN _slots <= _limit - used(_ref) - CASE WHEN _ahead THEN claimed(_ref) ELSE 0 END;
END $$;

-- Counts slots that are taken (or, with a negative number, freed) of a reference that has a limit. The caller runs
-- alone.
CREATE OR REPLACE FUNCTION count_slots(_ref text, _slots integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _limit integer := counted_limit(_ref);
BEGIN
    IF _limit IS NULL THEN RETURN; END IF;
    IF EXISTS (SELECT FROM slots s WHERE s.ref = _ref AND s.shares > 1) THEN
        IF count_in_shares(_ref, _slots, true) <> 0 THEN PERFORM refuse('internal', _ref || ': there was no room for ' || _slots); END IF;
    ELSE
        INSERT INTO slots AS s (ref, used, most) VALUES (_ref, greatest(_slots, 0), _limit)
            ON CONFLICT (ref, share) DO UPDATE SET used = s.used + _slots;
        IF _slots < 0 THEN
            DELETE FROM slots s WHERE s.ref = _ref AND s.used = 0;
        END IF;
    END IF;
    IF _slots < 0 THEN PERFORM wake(_ref); END IF;
END $$;

-- Counts in the shares of a large limit; returns how many slots found no room. A claim that is not patient skips rows
-- that another transaction has locked. A patient one locks all rows, in their order, before it changes any.
CREATE OR REPLACE FUNCTION count_in_shares(_ref text, _slots integer, _patient boolean) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE _left integer := _slots; _share record; _part integer;
BEGIN
    IF _patient THEN
        PERFORM FROM slots s WHERE s.ref = _ref ORDER BY s.share FOR UPDATE;
    END IF;
    WHILE _left <> 0 LOOP
        -- Prefers a row that is enough by itself. Each backend begins at another row, so that they do not meet.
        SELECT s.share, s.used, s.most INTO _share FROM slots s
            WHERE s.ref = _ref AND CASE WHEN _left > 0 THEN s.used < s.most ELSE s.used > 0 END
            ORDER BY CASE WHEN _left > 0 THEN s.most - s.used >= _left ELSE s.used >= -_left END DESC, (s.share + pg_backend_pid()) % s.shares
            LIMIT 1 FOR UPDATE SKIP LOCKED;
        EXIT WHEN NOT FOUND;
        _part := CASE WHEN _left > 0 THEN least(_left, _share.most - _share.used) ELSE greatest(_left, -_share.used) END;
        UPDATE slots s SET used = s.used + _part WHERE s.ref = _ref AND s.share = _share.share;
        _left := _left - _part;
    END LOOP;
    RETURN _left;
END $$;

-- In how many rows a limit is counted: one for fifty slots, fifty at most. `effective_limit_large` and `tidy_slots`
-- repeat where several begin. Tests replace this function.
CREATE OR REPLACE FUNCTION shares_for(_limit integer) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT greatest(least(_limit / 50, 50), 1)
$$;

-- Writes the slots in use of a reference, in as many rows as its limit asks for. While more is used than the limit
-- there is one row; `tidy_slots` divides it later. A key always has one row.
CREATE OR REPLACE FUNCTION put_slots(_ref text, _used bigint, _limit integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _shares integer := CASE WHEN _used <= _limit AND strpos(_ref, '/') = 0 THEN shares_for(_limit) ELSE 1 END;
BEGIN
    DELETE FROM slots s WHERE s.ref = _ref;
    IF _shares = 1 AND _used = 0 THEN RETURN; END IF;
    INSERT INTO slots (ref, share, shares, used, most)
        SELECT _ref, p.share, _shares, CASE WHEN _shares = 1 THEN _used ELSE least(greatest(_used - p.before, 0), p.most) END, p.most
        FROM (SELECT i AS share, _limit / _shares + (i < _limit % _shares)::integer AS most,
                     i * (_limit / _shares) + least(i, _limit % _shares) AS before FROM generate_series(0, _shares - 1) i) p;
END $$;

-- Counts a reference again after its limit has changed; with GROUP/*, every key of it.
CREATE OR REPLACE FUNCTION recount(_ref text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _name text := split_part(_ref, '/', 1); _key text;
BEGIN
    PERFORM set_effective_limit(_ref);
    IF _ref = every_key(_ref) THEN
        DELETE FROM slots s WHERE s.ref > _name || '/' AND s.ref < _name || '0';
        INSERT INTO slots (ref, used, most)
            SELECT u.ref, sum(u.slots), limit_of(u.ref) FROM (
                SELECT n.ref, n.slots FROM owned_job h
                    CROSS JOIN LATERAL (SELECT x.grp, x.key, x.cost, x.limits, x.queue FROM job x WHERE x.seq = h.seq OFFSET 0) j
                    CROSS JOIN LATERAL needs(j.grp, j.key, j.cost, j.limits, j.queue) n
                    WHERE h.state = 'running'
                UNION ALL SELECT n.ref, n.slots FROM program p, needs_of(p) n
            ) u WHERE u.ref COLLATE "C" > _name || '/' AND u.ref COLLATE "C" < _name || '0' AND limit_of(u.ref) IS NOT NULL GROUP BY u.ref;
        FOR _key IN SELECT DISTINCT l.parked_on FROM line l WHERE l.parked_on > _name || '/' AND l.parked_on < _name || '0' LOOP
            PERFORM wake(_key);
        END LOOP;
        RETURN;
    END IF;
    IF limit_of(_ref) IS NULL THEN
        DELETE FROM slots s WHERE s.ref = _ref;
    ELSE
        PERFORM put_slots(_ref, used_by_holders(_ref), limit_of(_ref));
    END IF;
    PERFORM wake(_ref);
END $$;

-- Counts the submit-side limits that came since, and deletes the rows that newer ones replace. A newest row without a
-- number clears the limit, and goes, too.
CREATE OR REPLACE FUNCTION count_new_limits() RETURNS void LANGUAGE plpgsql AS $$
DECLARE _ref text; _cleared bigint;
BEGIN
    FOR _ref IN SELECT DISTINCT b.ref FROM submit_limit b WHERE NOT b.counted LOOP
        -- The limit went and came again: the total begins anew.
        SELECT max(b.n) INTO _cleared FROM submit_limit b WHERE b.ref = _ref AND NOT b.counted AND b.slots IS NULL;
        IF _cleared IS NOT NULL AND (SELECT g.declared FROM effective_limit g WHERE g.ref = _ref) IS NULL THEN
            PERFORM forget_total(_ref, _cleared);
        END IF;
        DELETE FROM submit_limit b WHERE b.ref = _ref
            AND (b.slots IS NULL OR b.n < (SELECT max(c.n) FROM submit_limit c WHERE c.ref = _ref));
        UPDATE submit_limit b SET counted = true WHERE b.ref = _ref;
        PERFORM recount(_ref);
    END LOOP;
END $$;

-- Deletes the submit-side limit of a group with its last live job or program.
CREATE OR REPLACE FUNCTION drop_if_spent(_ref text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM submit_limit b WHERE b.ref = _ref) AND NOT is_live(_ref) THEN
        DELETE FROM submit_limit b WHERE b.ref = _ref;
        PERFORM recount(_ref);
    END IF;
END $$;

-- The classes of the jobs that are parked on a key, found one by one in the index.
CREATE OR REPLACE FUNCTION parked_classes(_ref text) RETURNS TABLE (queue text, class text, extra_keys text) LANGUAGE sql STABLE AS $$
    WITH RECURSIVE walk AS (
        (SELECT l.queue, l.class, l.extra_keys FROM line l WHERE l.parked_on = _ref ORDER BY l.queue, l.class, l.extra_keys LIMIT 1)
        UNION ALL
        SELECT n.queue, n.class, n.extra_keys FROM walk w CROSS JOIN LATERAL (
            SELECT l.queue, l.class, l.extra_keys FROM line l
            WHERE l.parked_on = _ref AND (l.queue, l.class, l.extra_keys) > (w.queue, w.class, w.extra_keys)
            ORDER BY l.queue, l.class, l.extra_keys LIMIT 1) n
    ) SELECT w.queue, w.class, w.extra_keys FROM walk w
$$;

-- Wakes jobs that are parked on a key: of each class the first ones, one for each free slot.
CREATE OR REPLACE FUNCTION wake_first(_ref text, _slots integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _class record;
BEGIN
    FOR _class IN SELECT * FROM parked_classes(_ref) LOOP
        UPDATE line l SET parked_on = NULL WHERE l.seq = ANY (ARRAY(
            SELECT f.seq FROM line f WHERE f.parked_on = _ref
                AND f.queue = _class.queue AND f.class = _class.class AND f.extra_keys = _class.extra_keys
            ORDER BY f.priority, f.run_at, f.seq LIMIT _slots FOR UPDATE SKIP LOCKED));
    END LOOP;
END $$;

-- Wakes jobs that are parked on a key, as far as it has room; all of them if it has no limit any more.
CREATE OR REPLACE FUNCTION wake(_ref text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _room bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM line l WHERE l.parked_on = _ref) THEN RETURN; END IF;
    _room := limit_of(_ref);
    IF _room IS NULL THEN
        UPDATE line l SET parked_on = NULL WHERE l.parked_on = _ref;
        RETURN;
    END IF;
    _room := _room - used(_ref);
    IF _room > 0 THEN PERFORM wake_first(_ref, _room::integer); END IF;
END $$;

-- For a job that leaves the line without taking its slots: wakes the jobs that are parked behind it on its keys.
CREATE OR REPLACE FUNCTION wake_keys_of(_job job) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF _job.key IS NOT NULL OR _job.limits IS NOT NULL THEN
        PERFORM wake(n.ref) FROM needs_of(_job) n WHERE strpos(n.ref, '/') > 0;
    END IF;
END $$;
