-- Counting for claims beside others: the rows of `slots`, and the order in which they are locked.
--
-- `change_slots` locks and changes rows in these steps:
--
-- 1. It inserts all rows that are new, by name. It may wait for another transaction that inserts the same row and holds
--    no older row yet.
-- 2. Keys of one slot. A key that is taken gets its row, if that is free and not locked; otherwise another transaction
--    has the slot, and nothing is counted. A key that is freed loses its row. Only the
--    transaction that frees the slot waits for such a row.
-- 3. All other references with one row, by name. It waits for rows that others have locked.
-- 4. References with several rows (shares), by name. It skips locked rows. If the rest is too little, the claim is
--    rolled back and made again *patiently*: it then waits for all rows of the reference, in their order.
--
-- Invariants:
--
-- 1. A transaction that waits for a row holds only rows of earlier steps, or earlier names of the same step. So no two
--    exchanges wait for each other.
-- 2. After `change_slots` an exchange waits for no row of `slots`, except that `park` may wait for another insert of the
--    row of a key whose limit is 0; these too are inserted by name.
-- 3. Of a group, no share exceeds its part of the limit, so all shares together keep the limit.

-- Counts what a claim takes and frees. `_refs` are sorted by name; `_delta` is what each changes by; `_shares` is its
-- number of rows, 0 for none. It returns the keys (`lost`) that have less room than the claim has planned with, by how
-- much (`over`), and whether anything was counted for them (`counted`). If a group has less room it fails with 40001,
-- and the caller makes the claim again.
CREATE OR REPLACE FUNCTION change_slots(_refs text[], _delta integer[], _most integer[], _shares integer[])
RETURNS TABLE (lost text, over integer, counted boolean) LANGUAGE plpgsql AS $$
DECLARE
    _made text[] := '{}'; _ones text[]; _late text[]; _wide_done text[] := '{}'; _here text[]; _here_delta integer[]; _here_most integer[]; _counted integer; _wide record; _lost text; _over text[]; _by integer[];
    _patient boolean := coalesce(current_setting('qo.patient', true) = 'on', false);
BEGIN
    IF _refs IS NULL THEN RETURN; END IF;
    IF 0 = ANY (_shares) THEN
        -- Step 1. Rows that another transaction has inserted since the plan are changed in step 2 or 3.
        WITH made AS (
            INSERT INTO slots (ref, used, most)
            SELECT c.ref, c.delta, c.most FROM unnest(_refs, _delta, _most, _shares) c (ref, delta, most, shares) WHERE c.shares = 0
            ON CONFLICT DO NOTHING RETURNING ref
        )
        SELECT coalesce(array_agg(m.ref), '{}') INTO _made FROM made m;
    END IF;
    -- Step 2. A row that is there with `used` 0 was left over.
    SELECT array_agg(c.ref) FILTER (WHERE c.delta = -1), array_agg(c.ref) FILTER (WHERE c.delta > 0) INTO _ones, _late
        FROM unnest(_refs, _delta, _most, _shares) c (ref, delta, most, shares)
        WHERE c.shares <= 1 AND c.most = 1 AND strpos(c.ref, '/') > 0 AND c.ref NOT IN (SELECT unnest(_made));
    IF _late IS NOT NULL THEN
        WITH free AS (
            SELECT s.ref FROM unnest(_late) c (ref)
            CROSS JOIN LATERAL (SELECT x.ref FROM slots x WHERE x.ref = c.ref AND x.share = 0 AND x.used = 0 FOR UPDATE SKIP LOCKED) s
        ), taken AS (
            UPDATE slots s SET used = 1 FROM free f WHERE s.ref = ANY (ARRAY[f.ref]) RETURNING s.ref
        )
        SELECT _made || coalesce(array_agg(t.ref), '{}') INTO _made FROM taken t;
        _late := ARRAY(SELECT l FROM unnest(_late) l WHERE l NOT IN (SELECT unnest(_made)));
        _made := _made || _late;
    END IF;
    IF _ones IS NOT NULL THEN
        WITH gone AS (
            DELETE FROM slots s USING unnest(_ones) c (ref) WHERE s.ref = ANY (ARRAY[c.ref]) AND s.used = 1 RETURNING s.ref
        )
        SELECT _made || coalesce(array_agg(g.ref), '{}') INTO _made FROM gone g;
    END IF;
    -- Step 3.
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
    -- Step 4. Each backend begins at another share, which nearly always is enough.
    IF NOT _patient AND _lost IS NULL AND 1 < ANY (_shares) THEN
        WITH free AS (
            SELECT c.ref, c.delta, s.share FROM unnest(_refs, _delta, _shares) c (ref, delta, shares) CROSS JOIN LATERAL (
                SELECT x.share FROM slots x WHERE x.ref = c.ref AND x.share = pg_backend_pid() % c.shares
                    AND x.used + c.delta BETWEEN 0 AND x.most FOR UPDATE SKIP LOCKED) s
            WHERE c.shares > 1
        ), counted AS (
            UPDATE slots s SET used = s.used + f.delta FROM free f WHERE s.ref = ANY (ARRAY[f.ref]) AND s.share = ANY (ARRAY[f.share]) RETURNING s.ref
        )
        SELECT coalesce(array_agg(c.ref), '{}') INTO _wide_done FROM counted c;
        _counted := _counted + cardinality(_wide_done);
    END IF;
    FOR _wide IN SELECT * FROM unnest(_refs, _delta, _shares) c (ref, delta, shares)
        WHERE c.shares > 1 AND c.ref NOT IN (SELECT unnest(_wide_done)) LOOP
        _counted := _counted + 1;
        EXIT WHEN _lost IS NOT NULL;
        IF count_in_shares(_wide.ref, _wide.delta, _patient) <> 0 THEN _lost := _wide.ref; END IF;
    END LOOP;
    IF _lost IS NOT NULL OR cardinality(_made) + _counted <> cardinality(_refs) THEN
        RAISE EXCEPTION 'another transaction took slots of % meanwhile', coalesce(_lost, _refs[1]) USING ERRCODE = '40001';
    END IF;
    RETURN QUERY SELECT o.ref, o.by, true FROM unnest(_over, _by) o (ref, by) UNION ALL SELECT l, 1, false FROM unnest(_late) l;
END $$;

-- Of jobs that are counted, returns those that may run, now that keys have less room than planned. The others stay in
-- line. What was counted for them is taken back, except of `_uncounted`. It skips rows that another transaction has
-- locked, because it holds rows that come later in the lock order; the claim then fails with 40001.
CREATE OR REPLACE FUNCTION withdraw_blocked(_seqs bigint[], _scarce text[], _room integer[], _uncounted text[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE _blocked bigint[]; _need record;
BEGIN
    SELECT c.blocked INTO _blocked FROM contend(_seqs, _scarce, _room) c;
    IF cardinality(_blocked) = 0 THEN RETURN _seqs; END IF;
    FOR _need IN SELECT n.ref, n.slots FROM limited_sums_of(_blocked) n WHERE n.ref NOT IN (SELECT unnest(_uncounted)) ORDER BY n.ref COLLATE "C" LOOP
        PERFORM FROM slots s WHERE s.ref = _need.ref AND s.shares = 1 FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            UPDATE slots s SET used = s.used - _need.slots WHERE s.ref = _need.ref;
        ELSIF count_in_shares(_need.ref, -_need.slots, false) <> 0 THEN
            RAISE EXCEPTION 'another transaction has locked the slots of %', _need.ref USING ERRCODE = '40001';
        END IF;
        IF strpos(_need.ref, '/') > 0 AND _need.ref <> ALL (_scarce) THEN PERFORM wake_first(_need.ref, _need.slots); END IF;
    END LOOP;
    RETURN without(_seqs, _blocked);
END $$;

-- Parks jobs on full keys. It locks the key's row first, so that the transaction that frees a slot of the key waits for
-- it and then finds the jobs. If another transaction has locked the row, the jobs stay in line, and a later claim parks
-- them. No job has a second key that it could wait for (`refuse_several_keys`).
CREATE OR REPLACE FUNCTION park(_seqs bigint[], _keys text[], _most integer[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _locked text[];
BEGIN
    IF 0 = ANY (_most) THEN
        INSERT INTO slots (ref, used, most)
            SELECT DISTINCT p.ref, 0, 0 FROM unnest(_keys, _most) p (ref, most)
            -- An existing row may be locked by a transaction that waits for this one.
            WHERE p.most = 0 AND (SELECT true FROM slots x WHERE x.ref = p.ref AND x.share = 0) IS NULL
            ORDER BY p.ref ON CONFLICT DO NOTHING;
    END IF;
    SELECT array_agg(s.ref) INTO _locked FROM (SELECT DISTINCT p.ref, p.most FROM unnest(_keys, _most) p (ref, most)) k
        CROSS JOIN LATERAL (SELECT x.ref FROM slots x WHERE x.ref = k.ref AND x.share = 0 AND x.used >= k.most FOR UPDATE SKIP LOCKED) s;
    SELECT array_agg(p.seq), array_agg(p.ref) INTO _seqs, _keys FROM unnest(_seqs, _keys) p (seq, ref) WHERE p.ref = ANY (_locked);
    UPDATE line l SET parked_on = p.ref FROM unnest(_seqs, _keys) p (seq, ref) WHERE l.seq = ANY (ARRAY[p.seq]);
END $$;
