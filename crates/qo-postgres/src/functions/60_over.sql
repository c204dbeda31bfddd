-- What is over: sessions, timeouts, claims, leases of standalone slots, `good_until`.

-- Ends a session with its attempts and its claims.
CREATE OR REPLACE FUNCTION end_session(_now bigint, _session uuid, _why text, OUT attempts bigint, OUT claims bigint)
LANGUAGE plpgsql AS $$
DECLARE _owned owned_job;
BEGIN
    attempts := 0;
    claims := 0;
    FOR _owned IN SELECT * FROM owned_job h WHERE h.session = _session AND h.state = 'running' ORDER BY h.token LOOP
        PERFORM end_attempt(_now, _owned.seq, 'lease_ended', _why, NULL, NULL);
        attempts := attempts + 1;
    END LOOP;
    FOR _owned IN SELECT * FROM owned_job h WHERE h.session = _session AND h.state = 'claimed' ORDER BY h.token LOOP
        PERFORM give_back(_now, _owned.seq);
        claims := claims + 1;
    END LOOP;
    DELETE FROM stop s WHERE s.session = _session;
    DELETE FROM session s WHERE s.session = _session;
    INSERT INTO ended_session VALUES (_session, _now);
END $$;

CREATE OR REPLACE FUNCTION free_program(_token bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _program program;
BEGIN
    DELETE FROM program p WHERE p.token = _token RETURNING * INTO STRICT _program;
    PERFORM count_slots(n.ref, -n.slots) FROM needs_of(_program) n;
    PERFORM drop_if_spent(n.ref) FROM needs_of(_program) n;
END $$;

-- Ends what is over, in the rule book's order, and returns how much that was. It also wakes jobs whose date has come.
CREATE OR REPLACE FUNCTION end_what_is_over(_now bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    _row record; _ended record;
    _sessions bigint := 0; _attempts bigint := 0; _claims bigint := 0; _slots bigint := 0; _expired bigint := 0;
BEGIN
    FOR _row IN SELECT s.session FROM session s WHERE s.lease_until <= _now ORDER BY s.lease_until, s.session LOOP
        SELECT * INTO _ended FROM end_session(_now, _row.session, 'lease ended');
        _sessions := _sessions + 1;
        _attempts := _attempts + _ended.attempts;
        _claims := _claims + _ended.claims;
    END LOOP;
    FOR _row IN SELECT h.seq FROM owned_job h WHERE h.until <= _now AND h.state = 'running' ORDER BY h.until, h.token LOOP
        PERFORM take_away(_now, _row.seq, 'timed_out', 'timed out');
        _attempts := _attempts + 1;
    END LOOP;
    FOR _row IN SELECT h.*, (SELECT j.id FROM job j WHERE j.seq = h.seq) AS id FROM owned_job h
        WHERE h.until <= _now AND h.state = 'claimed' ORDER BY h.until, h.token LOOP
        PERFORM give_back(_now, _row.seq);
        PERFORM tell_to_stop(_row.session, _row.token, _row.id, 'lease_ended');
        _claims := _claims + 1;
    END LOOP;
    FOR _row IN SELECT p.token FROM program p WHERE p.until <= _now ORDER BY p.until, p.token LOOP
        PERFORM free_program(_row.token);
        _slots := _slots + 1;
    END LOOP;
    FOR _row IN SELECT j.seq FROM job j WHERE j.good_until <= _now AND (SELECT true FROM line l WHERE l.seq = j.seq)
        ORDER BY j.good_until, j.seq LOOP
        PERFORM finish(_now, _row.seq, 'expired', NULL);
        _expired := _expired + 1;
    END LOOP;
    PERFORM wake_due(_now);
    RETURN jsonb_build_object('sessions', _sessions, 'attempts', _attempts, 'claims', _claims, 'slots', _slots,
                              'fired', 0, 'expired', _expired, 'forgotten', 0);
END $$;

-- Whether there is anything for `end_what_is_over`, apart from one session, which the caller renews. Each query is
-- ordered, so that it goes by index.
CREATE OR REPLACE FUNCTION is_anything_over(_now bigint, _session uuid) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce(
        (SELECT true FROM session s WHERE s.lease_until <= _now AND s.session IS DISTINCT FROM _session ORDER BY s.lease_until LIMIT 1),
        (SELECT true FROM owned_job h WHERE h.until <= _now ORDER BY h.until LIMIT 1),
        (SELECT true FROM program p WHERE p.until <= _now ORDER BY p.until LIMIT 1),
        (SELECT true FROM job j WHERE j.good_until <= _now AND (SELECT true FROM line l WHERE l.seq = j.seq) ORDER BY j.good_until LIMIT 1),
        false);
END $$;

-- Whether a sweep ended anything.
CREATE OR REPLACE FUNCTION ended_anything(_swept jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT bool_or(e.value::bigint > 0) FROM jsonb_each_text(_swept) e
$$;

-- How long a job is remembered after its end.
CREATE OR REPLACE FUNCTION retained_ms(_state job_state, _has_key boolean) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT CASE WHEN _has_key THEN greatest(r.retain_ms, {{RETAIN_KEY_MS}}) ELSE r.retain_ms END FROM retention r WHERE r.state = _state);
END $$;

-- Deletes the rows of references that have one row and no slot in use; one call looks at 5000 rows. Divides the row of
-- a group whose limit is 100 or more into shares, as soon as no more slots are used than the limit.
CREATE OR REPLACE FUNCTION tidy_slots() RETURNS void LANGUAGE plpgsql AS $$
DECLARE _from text := (SELECT c.swept_to FROM clock c); _to text;
BEGIN
    SELECT max(r.ref) INTO _to FROM (SELECT s.ref FROM slots s WHERE s.ref > _from ORDER BY s.ref LIMIT 5000) r;
    IF _to IS NOT NULL THEN
        DELETE FROM slots s WHERE s.ref > _from AND s.ref <= _to AND s.used = 0 AND s.shares = 1;
    END IF;
    IF _from <> coalesce(_to, '') THEN UPDATE clock SET swept_to = coalesce(_to, ''); END IF;
    PERFORM put_slots(g.ref, used_now(g.ref), coalesce(g.declared, g.submit)) FROM effective_limit g
        WHERE coalesce(g.declared, g.submit) >= 100 AND strpos(g.ref, '/') = 0
          AND (SELECT true FROM slots s WHERE s.ref = g.ref AND s.shares > 1 LIMIT 1) IS NULL AND used_now(g.ref) <= coalesce(g.declared, g.submit);
END $$;

-- Forgets ended jobs whose retention is over, {{FORGOTTEN}} at a time, and ended sessions.
CREATE OR REPLACE FUNCTION forget(_now bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE _seqs bigint[]; _workflows text[]; _tokens bigint[];
BEGIN
    SELECT array_agg(o.seq) INTO _seqs FROM (
        SELECT d.seq FROM retention r CROSS JOIN (VALUES (false), (true)) k (has_key)
        CROSS JOIN LATERAL (SELECT retained_ms(r.state, k.has_key) AS ms) kept
        CROSS JOIN LATERAL (
            SELECT f.seq, f.finished_at FROM done f
            WHERE f.state = r.state AND (f.idempotency_key IS NOT NULL) = k.has_key AND f.finished_at <= _now - kept.ms
              AND (f.workflow IS NULL OR f.state = 'succeeded' OR f.skipped
                   OR NOT EXISTS (SELECT FROM job j WHERE j.workflow = f.workflow)
                   OR EXISTS (SELECT FROM workflow w WHERE w.workflow = f.workflow
                              AND (w.on_failure = 'continue' OR w.cancelled)))
            ORDER BY f.finished_at, f.seq LIMIT {{FORGOTTEN}}) d
        ORDER BY d.finished_at + kept.ms, d.seq LIMIT {{FORGOTTEN}}) o;
    DELETE FROM ended_session e WHERE e.session IN (
        SELECT o.session FROM ended_session o WHERE o.ended_at <= _now - {{RETAIN_SESSION_MS}} ORDER BY o.ended_at, o.session LIMIT {{FORGOTTEN}});
    PERFORM tidy_slots();
    -- Locks of groups that have no live job or program.
    DELETE FROM submit_lock a WHERE a.ref IN (
        SELECT o.ref FROM submit_lock o WHERE o.ref <> 'cluster' AND o.ref NOT LIKE 'queue:%' AND NOT is_live(o.ref) LIMIT {{FORGOTTEN}} FOR UPDATE SKIP LOCKED);
    IF _seqs IS NULL THEN RETURN 0; END IF;
    WITH gone AS (DELETE FROM done d WHERE d.seq = ANY (_seqs) RETURNING d.workflow, d.attempts, d.last_token)
    SELECT array_agg(DISTINCT g.workflow) FILTER (WHERE g.workflow IS NOT NULL),
           array_agg(t.token) FILTER (WHERE t.token IS NOT NULL)
    INTO _workflows, _tokens FROM gone g LEFT JOIN LATERAL (
        SELECT (a->>'token')::bigint AS token FROM jsonb_array_elements(g.attempts) a UNION ALL SELECT g.last_token) t ON true;
    DELETE FROM attempt_log g WHERE g.token = ANY (_tokens);
    DELETE FROM workflow w WHERE w.workflow IN (
        SELECT o.workflow FROM workflow o WHERE o.workflow = ANY (_workflows)
            AND NOT EXISTS (SELECT FROM job j WHERE j.workflow = o.workflow)
            AND NOT EXISTS (SELECT FROM done d WHERE d.workflow = o.workflow)
        FOR UPDATE SKIP LOCKED);
    RETURN cardinality(_seqs);
END $$;
