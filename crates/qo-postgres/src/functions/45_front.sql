-- The front of a line: claims begin to look there, and need not step over what was deleted before it.
--
-- It moves in two steps, so that nobody is passed over who has entered the line and not committed yet. First a place is
-- announced: from then on whoever enters before it says so in `early`. When all have ended who may not have heard of that, and
-- still nobody stands before it, it is the front. Those who enter hold a lock of the era whose announcements they have read;
-- so one who finds that lock free knows that they have ended. Nobody waits for anybody.

-- How long an era is. Tests put their own length here.
CREATE OR REPLACE FUNCTION era_ms() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 1000::bigint $$;

CREATE OR REPLACE FUNCTION era_key(_era bigint) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT ((29552 + _era % 3) << 32) | 'clock'::regclass::oid::bigint
$$;

-- Where to begin to look in a queue.
CREATE OR REPLACE FUNCTION front_of(_queue text) RETURNS TABLE (priority integer, run_at bigint, seq bigint) LANGUAGE sql STABLE AS $$
    SELECT coalesce(f.priority, -2147483648), coalesce(f.run_at, -9223372036854775808), coalesce(f.seq, 0)
    FROM (SELECT 1) one
    LEFT JOIN LATERAL (SELECT * FROM front x WHERE x.queue = _queue AND NOT EXISTS (SELECT FROM early e WHERE e.queue = _queue) OFFSET 0) f ON true
$$;

-- Somebody has entered the line.
CREATE OR REPLACE FUNCTION note_early() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE _era bigint; _seen bigint; _knows boolean;
BEGIN
    IF NOT EXISTS (SELECT FROM entered e WHERE e.parked_on IS NULL) THEN RETURN NULL; END IF;
    -- One whose snapshot is old cannot read what is announced.
    _knows := current_setting('transaction_isolation') = 'read committed';
    SELECT e.n INTO _era FROM era e;
    WHILE _knows AND _seen IS DISTINCT FROM _era LOOP
        _seen := _era;
        _knows := pg_try_advisory_xact_lock_shared(era_key(_era));
        -- Only one who holds the lock while the era lasts has it in time.
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

-- Moves the fronts, if it is time to and nobody else does.
CREATE OR REPLACE FUNCTION move_fronts(_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _era bigint; _queue record; _first record; _fronts bigint := (SELECT count(*) FROM front);
BEGIN
    SELECT e.n INTO _era FROM era e WHERE e.began + era_ms() <= _now FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN RETURN; END IF;
    UPDATE era SET began = _now;
    -- Who has read the announcements of the era before this one has not heard of the latest.
    IF NOT pg_try_advisory_xact_lock(era_key(_era - 1)) THEN RETURN; END IF;
    -- Only the first one in line is looked at: an index does not stop at a place within one priority.
    UPDATE front f SET priority = f.next_priority, run_at = f.next_run_at, seq = f.next_seq
        WHERE (f.next_priority, f.next_run_at, f.next_seq) > (f.priority, f.run_at, f.seq)
          AND coalesce((SELECT (l.priority, l.run_at, l.seq) >= (f.next_priority, f.next_run_at, f.next_seq) FROM line l
                  WHERE l.parked_on IS NULL AND l.queue = f.queue AND (l.priority, l.run_at, l.seq) >= (f.priority, f.run_at, f.seq)
                  ORDER BY l.priority, l.run_at, l.seq LIMIT 1), true);
    -- Where very many are early it is of no use: it begins anew with whoever is first.
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
                -- Very many queues that come and go are not remembered.
                DELETE FROM front f WHERE f.queue = _queue.queue;
                CONTINUE;
            END IF;
            -- Nobody is there, and whoever comes has a later date, as a rule.
            SELECT _queue.next_priority AS priority, _now AS run_at, 0::bigint AS seq INTO _first;
            CONTINUE WHEN (_first.priority, _first.run_at, _first.seq) <= (_queue.priority, _queue.run_at, _queue.seq);
        END IF;
        INSERT INTO front AS f (queue, next_priority, next_run_at, next_seq)
            VALUES (_queue.queue, _first.priority, _first.run_at, _first.seq)
            ON CONFLICT (queue) DO UPDATE SET next_priority = excluded.next_priority, next_run_at = excluded.next_run_at, next_seq = excluded.next_seq;
    END LOOP;
    UPDATE era SET n = _era + 1;
END $$;
