-- Store time, the namespace lock, errors.

-- Store time: the server's clock, but never before the latest time that was recorded. Tests replace this function.
CREATE OR REPLACE FUNCTION store_time() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN greatest((extract(epoch FROM clock_timestamp()) * 1000)::bigint, (SELECT latest FROM clock));
END $$;

-- The key of the namespace lock. A function that changes what other transactions rely upon (limits, sessions,
-- workflows) takes the lock exclusively and runs alone; exchanges that only claim and settle share it.
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

-- Takes the namespace lock exclusively, until the commit, and returns the store time. It counts the limits that came
-- with submitted jobs first, so that every function that runs alone decides with them.
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

-- Refuses a call. The error code says of which kind the error is; `call.rs` reads it.
CREATE OR REPLACE FUNCTION refuse(_kind text, _message text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', _message USING ERRCODE = CASE _kind
        WHEN 'invalid' THEN 'QOINV' WHEN 'not_found' THEN 'QONTF' WHEN 'conflict' THEN 'QOCFL'
        WHEN 'limit_reached' THEN 'QOLIM' WHEN 'fenced' THEN 'QOFEN' ELSE 'QOINT' END;
END $$;

-- An error as the answer for one item of a call.
CREATE OR REPLACE FUNCTION failure(_kind text, _message text) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object('Err', jsonb_build_object('kind', _kind, 'message', _message))
$$;

CREATE OR REPLACE FUNCTION success(_value anyelement) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object('Ok', to_jsonb(_value))
$$;

-- The text of a refusal: field, value, rule.
CREATE OR REPLACE FUNCTION invalid(_field text, _value anyelement, _rule text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT _field || ': ' || to_json(left(_value::text, 80))::text || ': ' || _rule
$$;

-- The next fence token. A trial run, which its caller rolls back, draws none and gets 0. `_trial` is a parameter and
-- not a setting: a client could turn a setting on and get a token of 0, and only a superuser can pin a custom setting
-- to a function.
CREATE OR REPLACE FUNCTION next_token(_trial boolean) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF _trial THEN RETURN 0; END IF;
    RETURN nextval('fence_token');
END $$;

-- A token as a client sent it. One beyond bigint was never drawn and owns nothing.
CREATE OR REPLACE FUNCTION token_in(_said jsonb) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT least((_said->>'token')::numeric, 9223372036854775807)::bigint
$$;

-- Notifies the processes that listen: something has changed that they may wait for. PostgreSQL sends equal
-- notifications of a transaction once. `_what` is 'job' where jobs were submitted: a worker then claims without looking
-- first.
CREATE OR REPLACE FUNCTION notify_listeners(_what text DEFAULT '') RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('qo.' || current_schema(), _what);
END $$;
