-- The front of a queue's line: a place before which no job stands. Claims scan from there, so that they do not step
-- over the dead tuples of jobs that were claimed before.
--
-- How a front moves, once in an era:
--
-- 1. `move_fronts` announces a place for each queue (`front.next_…`) and begins the next era.
-- 2. From then on a transaction that puts a job in line before an announced place also inserts it into `early`
--    (`note_early`, a trigger on `line`). While a queue has a row in `early`, claims ignore its front.
-- 3. Each transaction that puts jobs in line holds, until it ends, a shared advisory lock of the era whose
--    announcements it has read.
-- 4. One era later `move_fronts` tries the exclusive lock of the era before. If it is free, every transaction that may
--    not have read the announcement has ended. If also no job stands before the announced place, that becomes the
--    front. If it is not free, nothing moves.
--
-- Invariants:
--
-- 1. No job in line, committed or not, stands before its queue's front unless `early` has it.
-- 2. No transaction waits for an era's lock: both sides only try it.

-- The length of an era in milliseconds. Tests replace this function.
CREATE OR REPLACE FUNCTION era_ms() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 1000::bigint $$;

-- Three keys in rotation are enough: the number of the era grows only when the lock of the era before was free.
CREATE OR REPLACE FUNCTION era_key(_era bigint) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT ((29552 + _era % 3) << 32) | 'clock'::regclass::oid::bigint
$$;

-- Where scans of a queue begin: its front, or the very beginning while a job in `early` stands before it.
CREATE OR REPLACE FUNCTION front_of(_queue text) RETURNS TABLE (priority integer, run_at bigint, seq bigint) LANGUAGE sql STABLE AS $$
    SELECT coalesce(f.priority, -2147483648), coalesce(f.run_at, -9223372036854775808), coalesce(f.seq, 0)
    FROM (SELECT 1) one
    LEFT JOIN LATERAL (SELECT * FROM front x WHERE x.queue = _queue AND NOT EXISTS (SELECT FROM early e WHERE e.queue = _queue) OFFSET 0) f ON true
$$;

-- Steps 2 and 3, for every statement that puts jobs in line.
CREATE OR REPLACE FUNCTION note_early() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE _era bigint; _seen bigint; _knows boolean;
BEGIN
    IF NOT EXISTS (SELECT FROM entered e WHERE e.parked_on IS NULL) THEN RETURN NULL; END IF;
    -- A transaction with an older snapshot cannot read announcements: all its jobs go into `early`.
    _knows := current_setting('transaction_isolation') = 'read committed';
    SELECT e.n INTO _era FROM era e;
    WHILE _knows AND _seen IS DISTINCT FROM _era LOOP
        _seen := _era;
        _knows := pg_try_advisory_xact_lock_shared(era_key(_era));
        -- The lock counts only if the era has not ended before it was taken.
        SELECT e.n INTO _era FROM era e;
    END LOOP;
    INSERT INTO early (queue, seq)
        SELECT e.queue, e.seq FROM entered e
        WHERE e.parked_on IS NULL AND (NOT _knows OR EXISTS (
            SELECT FROM front f WHERE f.queue = e.queue AND (e.priority, e.run_at, e.seq) < (f.next_priority, f.next_run_at, f.next_seq)));
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER line_entered AFTER INSERT ON line REFERENCING NEW TABLE AS entered
    FOR EACH STATEMENT EXECUTE FUNCTION note_early();
CREATE OR REPLACE TRIGGER line_entered_again AFTER UPDATE ON line REFERENCING NEW TABLE AS entered
    FOR EACH STATEMENT EXECUTE FUNCTION note_early();

-- Steps 4 and 1, if the era is over and no other transaction is doing it.
CREATE OR REPLACE FUNCTION move_fronts(_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _era bigint; _queue record; _first record; _fronts bigint := (SELECT count(*) FROM front);
BEGIN
    SELECT e.n INTO _era FROM era e WHERE e.began + era_ms() <= _now FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN RETURN; END IF;
    UPDATE era SET began = _now;
    -- Transactions that hold the lock of the era before may not have read the latest announcement.
    IF NOT pg_try_advisory_xact_lock(era_key(_era - 1)) THEN RETURN; END IF;
    -- It looks at the first job in line only: within one priority an index scan does not stop at a place.
    UPDATE front f SET priority = f.next_priority, run_at = f.next_run_at, seq = f.next_seq
        WHERE (f.next_priority, f.next_run_at, f.next_seq) > (f.priority, f.run_at, f.seq)
          AND coalesce((SELECT (l.priority, l.run_at, l.seq) >= (f.next_priority, f.next_run_at, f.next_seq) FROM line l
                  WHERE l.parked_on IS NULL AND l.queue = f.queue AND (l.priority, l.run_at, l.seq) >= (f.priority, f.run_at, f.seq)
                  ORDER BY l.priority, l.run_at, l.seq LIMIT 1), true);
    -- With very many early jobs the front is useless: it begins again at the first job in line.
    FOR _queue IN SELECT e.queue FROM early e GROUP BY e.queue HAVING count(*) > 1000 LOOP
        DELETE FROM front f WHERE f.queue = _queue.queue;
        DELETE FROM early e WHERE e.ctid = ANY (ARRAY(SELECT x.ctid FROM early x WHERE x.queue = _queue.queue FOR UPDATE SKIP LOCKED));
    END LOOP;
    DELETE FROM early e WHERE e.ctid = ANY (ARRAY(
        SELECT x.ctid FROM early x
        WHERE (SELECT l.queue = x.queue AND l.parked_on IS NULL FROM line l WHERE l.seq = x.seq) IS NOT TRUE FOR UPDATE SKIP LOCKED));
    FOR _queue IN
        SELECT q.queue, f.priority, f.run_at, f.seq, f.next_priority FROM (SELECT x.queue FROM front x UNION SELECT w.queue FROM queues_in_line() w) q
        LEFT JOIN front f ON f.queue = q.queue
    LOOP
        SELECT l.priority, l.run_at, l.seq INTO _first FROM line l
            WHERE l.parked_on IS NULL AND l.queue = _queue.queue AND (l.priority, l.run_at, l.seq)
                >= (coalesce(_queue.priority, -2147483648), coalesce(_queue.run_at, -9223372036854775808), coalesce(_queue.seq, 0))
            ORDER BY l.priority, l.run_at, l.seq LIMIT 1;
        IF NOT FOUND THEN
            IF _fronts > 100 OR _queue.next_priority IS NULL THEN
                -- Queues that come and go by the hundred get no front.
                DELETE FROM front f WHERE f.queue = _queue.queue;
                CONTINUE;
            END IF;
            -- The queue is empty, and the next job will, as a rule, have a later date.
            SELECT _queue.next_priority AS priority, _now AS run_at, 0::bigint AS seq INTO _first;
            CONTINUE WHEN (_first.priority, _first.run_at, _first.seq) <= (_queue.priority, _queue.run_at, _queue.seq);
        END IF;
        INSERT INTO front AS f (queue, next_priority, next_run_at, next_seq)
            VALUES (_queue.queue, _first.priority, _first.run_at, _first.seq)
            ON CONFLICT (queue) DO UPDATE SET next_priority = excluded.next_priority, next_run_at = excluded.next_run_at, next_seq = excluded.next_seq;
    END LOOP;
    UPDATE era SET n = _era + 1;
END $$;
