-- Store time, the turn, errors.

-- Store time: the server's clock, but never before what somebody acted upon. Tests put their own clock here.
CREATE OR REPLACE FUNCTION store_time() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN greatest((extract(epoch FROM clock_timestamp()) * 1000)::bigint, (SELECT latest FROM clock));
END $$;

-- The lock of the namespace: those that change something which others rely upon (limits, sessions, workflows) take it
-- alone, those that only claim and settle share it.
CREATE OR REPLACE FUNCTION namespace_key() RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT (29551::bigint << 32) | 'clock'::regclass::oid::bigint
$$;

CREATE OR REPLACE FUNCTION check_isolation() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'qo works at READ COMMITTED, not at %', upper(current_setting('transaction_isolation'))
            USING ERRCODE = 'QOINT';
    END IF;
END $$;

-- Waits until nobody else works in this namespace, and says what time it is then. Limits that submitted jobs brought
-- since are counted first.
CREATE OR REPLACE FUNCTION lock_namespace() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE _now bigint;
BEGIN
    PERFORM check_isolation();
    PERFORM pg_advisory_xact_lock(namespace_key());
    _now := store_time();
    UPDATE clock SET latest = _now WHERE latest < _now;
    PERFORM count_new_limits();
    RETURN _now;
END $$;

-- Refuses a call. The class of the code says what kind of error it is.
CREATE OR REPLACE FUNCTION refuse(_kind text, _message text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', _message USING ERRCODE = CASE _kind
        WHEN 'invalid' THEN 'QOINV' WHEN 'not_found' THEN 'QONTF' WHEN 'conflict' THEN 'QOCFL'
        WHEN 'limit_reached' THEN 'QOLIM' WHEN 'fenced' THEN 'QOFEN' ELSE 'QOINT' END;
END $$;

-- An error as one of several answers of a call.
CREATE OR REPLACE FUNCTION failure(_kind text, _message text) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object('Err', jsonb_build_object('kind', _kind, 'message', _message))
$$;

CREATE OR REPLACE FUNCTION success(_value anyelement) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object('Ok', to_jsonb(_value))
$$;

-- Names the field, the value and the rule.
CREATE OR REPLACE FUNCTION invalid(_field text, _value anyelement, _rule text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT _field || ': ' || to_json(left(_value::text, 80))::text || ': ' || _rule
$$;

-- The next fence token. A trial run, which is undone, draws none. That it is one is an argument and not a setting: a client
-- could switch a setting on, and would get a token of 0; and to pin a setting of our own to a function takes a superuser.
CREATE OR REPLACE FUNCTION next_token(_trial boolean) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF _trial THEN RETURN 0; END IF;
    RETURN nextval('fence_token');
END $$;

-- A token as somebody sent it. One that is larger than any that was ever drawn is nobody's.
CREATE OR REPLACE FUNCTION token_in(_said jsonb) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT least((_said->>'token')::numeric, 9223372036854775807)::bigint
$$;

-- Wakes those who listen: something has changed that they may be waiting for. Once per transaction, however often it is
-- called. `_what` is 'job' where jobs have come, so that a worker need not ask first.
CREATE OR REPLACE FUNCTION notify_listeners(_what text DEFAULT '') RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('qo.' || current_schema(), _what);
END $$;
