-- Which jobs are next in line, for claims beside others.

-- How many jobs more than it wants a claim looks at in one scan. Tests replace this function.
CREATE OR REPLACE FUNCTION look_ahead() RETURNS integer LANGUAGE sql IMMUTABLE AS $$ SELECT 50 $$;

-- The next jobs in line that a session serves: at most `_most`, in claim order. It locks their rows and skips those
-- that another transaction has locked. `whole` is false if it has not looked at the whole line. It begins at `_from`,
-- if given; `until` is where the next call continues.
CREATE OR REPLACE FUNCTION head_of_line(
    _session session, _most integer, _max_claim_batch integer, _full text[], _from place,
    OUT seqs bigint[], OUT queues text[], OUT classes text[], OUT whole boolean, OUT until place
) LANGUAGE plpgsql AS $$
DECLARE _queue record; _place record; _first record; _window record; _some record; _wanted integer; _look integer; _jumped boolean;
BEGIN
    seqs := '{}';
    queues := '{}';
    classes := '{}';
    whole := true;
    until := _from;
    FOR _queue IN
        SELECT q.queue, count(*) OVER (PARTITION BY queue_priority(q.queue)) AS equals
        FROM (SELECT unnest(_session.queues) AS queue WHERE cardinality(_session.queues) > 0
              UNION SELECT w.queue FROM queues_in_line() w WHERE cardinality(_session.queues) = 0) q
        WHERE NOT is_paused(q.queue)
        ORDER BY queue_priority(q.queue), q.queue
    LOOP
        CONTINUE WHEN _from.queue <> _queue.queue;
        EXIT WHEN 'cluster' = ANY (_full);
        IF 'queue:' || _queue.queue = ANY (_full) THEN
            _from := NULL;
            CONTINUE;
        END IF;
        IF _queue.equals > 1 THEN
            -- Queues of one priority are one line, in which their jobs mix: `heads_of_classes` does that.
            whole := false;
            EXIT;
        END IF;
        _wanted := least(_most - cardinality(seqs), _max_claim_batch);
        _look := _wanted + look_ahead();
        _jumped := false;
        IF _from IS NULL THEN
            SELECT * INTO _place FROM front_of(_queue.queue);
        ELSE
            SELECT _from.priority AS priority, _from.run_at AS run_at, _from.seq AS seq INTO _place;
            _from := NULL;
        END IF;
        -- Window by window: count how many of its jobs the session serves, and collect those.
        WHILE _wanted > 0 LOOP
            SELECT count(*) AS seen, count(*) FILTER (WHERE NOT h.served) AS others,
                   (array_agg(h.priority))[count(*)] AS priority, (array_agg(h.run_at))[count(*)] AS run_at, (array_agg(h.seq))[count(*)] AS seq,
                   array_agg(h.seq) FILTER (WHERE h.served) AS own
            INTO _window FROM (
                SELECT (l.task IN (SELECT unnest(_session.tasks))) IS TRUE AND split_part(l.class, ' ', 2) <> ALL (_full) AS served,
                       l.priority, l.run_at, l.seq FROM line l
                WHERE l.parked_on IS NULL AND l.queue = _queue.queue AND (l.priority, l.run_at, l.seq) >= (_place.priority, _place.run_at, _place.seq)
                ORDER BY l.priority, l.run_at, l.seq LIMIT _look) h;
            IF _window.others * 2 > _window.seen THEN
                -- Most of the window belongs to other workers: jump to the first job that this session serves, instead
                -- of reading them one by one.
                whole := NOT _jumped;
                EXIT WHEN _jumped;
                SELECT h.priority, h.run_at, h.seq INTO _first FROM classes_of(_session) h
                    WHERE h.queue = _queue.queue AND (cardinality(_full) = 0 OR NOT needs_one_of(h.class, _full))
                    ORDER BY h.priority, h.run_at, h.seq LIMIT 1;
                EXIT WHEN NOT FOUND;
                -- Never jump back: this claim, or another one, has what lies before.
                whole := (_first.priority, _first.run_at, _first.seq) >= (_place.priority, _place.run_at, _place.seq);
                EXIT WHEN NOT whole;
                _place := _first;
                _jumped := true;
                CONTINUE;
            END IF;
            SELECT coalesce(array_agg(h.seq), '{}') AS seqs, coalesce(array_agg(h.class), '{}') AS classes, count(*) AS n, (array_agg(h.priority))[count(*)] AS priority,
                   (array_agg(h.run_at))[count(*)] AS run_at INTO _some FROM (
                -- Lock by number, one by one. A scan with an upper place would read on to the end of the index if other
                -- transactions have locked the rows before it. Keep the order of the list: a sort would lock more rows
                -- than wanted.
                SELECT l.* FROM unnest(_window.own) w (seq)
                CROSS JOIN LATERAL (SELECT x.seq, x.class, x.priority, x.run_at FROM line x
                                    WHERE x.seq = w.seq AND coalesce(x.parked_on, '') = '' FOR UPDATE SKIP LOCKED) l
                LIMIT _wanted) h;
            seqs := seqs || _some.seqs;
            classes := classes || _some.classes;
            queues := queues || array_fill(_queue.queue, ARRAY[_some.n::integer]);
            until := CASE WHEN _some.n = _wanted THEN ROW(_queue.queue, _some.priority, _some.run_at, _some.seqs[_some.n] + 1)::place
                          ELSE ROW(_queue.queue, _window.priority, _window.run_at, _window.seq + 1)::place END;
            EXIT WHEN _window.seen < _look;
            -- Other transactions have locked some: double the window.
            _wanted := _wanted - _some.n;
            _look := greatest(_look, least(2 * _look, 1000));
            SELECT _window.priority AS priority, _window.run_at AS run_at, _window.seq + 1 AS seq INTO _place;
        END LOOP;
        EXIT WHEN NOT whole OR cardinality(seqs) >= _most;
    END LOOP;
END $$;

-- Whether the jobs of a class need one of the groups in `_full`.
CREATE OR REPLACE FUNCTION needs_one_of(_class text, _full text[]) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT split_part(_class, ' ', 2) = ANY (_full)
        OR strpos(_class, '=') > 0 AND (string_to_array(regexp_replace(_class, '=[0-9]+', '', 'g'), ' '))[4:] && _full
$$;

-- The next jobs in claim order among the classes that a session serves and that need no full group: at most `_most`,
-- perhaps fewer, but at least one if there is one that is not locked. It locks their rows.
--
-- It looks at the first few jobs of each class. If a class has more, a job behind the last of these is not known to be
-- next, so the list ends there, and the caller asks again.
CREATE OR REPLACE FUNCTION heads_of_classes(
    _session session, _most integer, _max_claim_batch integer, _given text[], _full text[], _passed bigint[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    _queues text[]; _classes text[]; _priorities integer[]; _few integer; _seqs bigint[]; _locked bigint[]; _front record;
    _look integer := _most; _seen integer;
BEGIN
    SELECT array_agg(a.queue), array_agg(a.class), array_agg(queue_priority(a.queue)) INTO _queues, _classes, _priorities
    FROM classes_of(_session) a
    WHERE (cardinality(_full) = 0 OR NOT needs_one_of(a.class, _full) AND 'cluster' <> ALL (_full) AND 'queue:' || a.queue <> ALL (_full))
      AND (_max_claim_batch IS NULL OR (SELECT count(*) FROM unnest(_given) g WHERE g = a.queue) < _max_claim_batch);
    IF _classes IS NULL THEN RETURN '{}'; END IF;
    IF cardinality(_classes) = 1 THEN
        SELECT * INTO _front FROM front_of(_queues[1]);
        SELECT array_agg(h.seq) INTO _locked FROM (
            SELECT l.seq FROM line l
            WHERE l.parked_on IS NULL AND l.queue = _queues[1] AND l.class = _classes[1] AND l.seq NOT IN (SELECT unnest(_passed))
              AND (l.priority, l.run_at, l.seq) >= (_front.priority, _front.run_at, _front.seq)
            ORDER BY l.priority, l.run_at, l.seq
            LIMIT least(_most, _max_claim_batch - (SELECT count(*) FROM unnest(_given) g WHERE g = _queues[1])) FOR UPDATE SKIP LOCKED) h;
        RETURN coalesce(_locked, '{}');
    END IF;
    FOR _try IN 1 .. 6 LOOP
        _few := least(_look, _look / cardinality(_classes) + 2);
        WITH heads AS MATERIALIZED (
            SELECT h.seq, a.queue, a.queue_priority, h.priority, h.run_at, a.n,
                   row_number() OVER (PARTITION BY a.n ORDER BY h.priority, h.run_at, h.seq) AS i
            FROM unnest(_queues, _classes, _priorities) WITH ORDINALITY a (queue, class, queue_priority, n)
            CROSS JOIN LATERAL front_of(a.queue) f
            CROSS JOIN LATERAL (
                SELECT l.seq, l.priority, l.run_at FROM line l
                WHERE l.parked_on IS NULL AND l.queue = a.queue AND l.class = a.class AND l.seq NOT IN (SELECT unnest(_passed))
                  AND (l.priority, l.run_at, l.seq) >= (f.priority, f.run_at, f.seq)
                ORDER BY l.priority, l.run_at, l.seq LIMIT _few) h
        ), known AS (
            -- Up to this place the order is known.
            SELECT min(ARRAY[h.queue_priority, h.priority, h.run_at, h.seq]::bigint[]) AS until FROM heads h WHERE h.i = _few
        ), next AS (
            SELECT h.*, row_number() OVER (PARTITION BY h.queue ORDER BY h.priority, h.run_at, h.seq) AS of_queue
            FROM heads h, known k
            WHERE k.until IS NULL OR ARRAY[h.queue_priority, h.priority, h.run_at, h.seq]::bigint[] <= k.until
        )
        SELECT array_agg(m.seq ORDER BY m.queue_priority, m.priority, m.run_at, m.seq) INTO _seqs FROM (
            SELECT n.* FROM next n
            WHERE _max_claim_batch IS NULL OR n.of_queue <= _max_claim_batch - (SELECT count(*) FROM unnest(_given) g WHERE g = n.queue)
            ORDER BY n.queue_priority, n.priority, n.run_at, n.seq LIMIT _look) m;
        EXIT WHEN _seqs IS NULL;
        SELECT array_agg(f.seq) INTO _locked FROM (
            SELECT l.seq FROM unnest(_seqs) WITH ORDINALITY s (seq, n)
            CROSS JOIN LATERAL (SELECT x.seq FROM line x WHERE x.seq = s.seq AND coalesce(x.parked_on, '') = '' FOR UPDATE SKIP LOCKED) l
            ORDER BY s.n LIMIT _most) f;
        EXIT WHEN cardinality(_locked) >= _most OR _try > 1 AND _locked IS NOT NULL OR cardinality(_seqs) = _seen;
        -- Other transactions have locked them: look further.
        _seen := cardinality(_seqs);
        _look := _look + 1000;
    END LOOP;
    RETURN coalesce(_locked, '{}');
END $$;

-- A list without some of its members, in its order.
CREATE OR REPLACE FUNCTION without(_seqs bigint[], _some bigint[]) RETURNS bigint[] LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(array_agg(s.seq ORDER BY s.i), '{}') FROM unnest(_seqs) WITH ORDINALITY s (seq, i)
    WHERE s.seq NOT IN (SELECT unnest(_some))
$$;
