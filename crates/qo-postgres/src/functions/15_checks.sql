-- What a call may bring: the rules of qo-core that need no state, at every door. A door checks its arguments again even
-- if the client has checked them: every worker and every view must be able to read what is stored.
--
-- `{{NAME}}` stands for a value of qo-core; see values.rs. Backslashes stand in E'' strings only, so that a caller's
-- `standard_conforming_strings` does not change a rule.

-- Length and pattern apart: a bounded repetition in a regular expression costs ten times as much.
CREATE OR REPLACE FUNCTION is_name(_text text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(_text ~ '^[A-Za-z0-9_][A-Za-z0-9_.-]*$' AND octet_length(_text) <= {{NAME_BYTES}} AND _text <> 'cluster', false)
$$;

CREATE OR REPLACE FUNCTION is_key(_text text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(octet_length(_text) BETWEEN 1 AND {{KEY_BYTES}} AND _text <> '*'
        AND _text !~ E'[\\u0001-\\u001f\\u007f-\\u009f]', false)
$$;

CREATE OR REPLACE FUNCTION is_uuid(_text text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(_text ~* '^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$', false)
$$;

CREATE OR REPLACE FUNCTION is_traceparent(_text text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(_text ~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'
        AND substr(_text, 4, 32) <> repeat('0', 32) AND substr(_text, 37, 16) <> repeat('0', 16), false)
$$;

-- NAME or NAME/KEY: a reference that a submit-side limit, an extra limit or a program may name.
CREATE OR REPLACE FUNCTION is_group_or_key(_text text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT is_name(split_part(_text, '/', 1)) AND (strpos(_text, '/') = 0 OR is_key(substr(_text, strpos(_text, '/') + 1)))
$$;

-- Any group reference.
CREATE OR REPLACE FUNCTION is_group(_text text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(CASE WHEN _text = 'cluster' THEN true
        WHEN left(_text, 6) = 'queue:' THEN is_name(substr(_text, 7))
        WHEN right(_text, 2) = '/*' AND strpos(_text, '/') = length(_text) - 1 THEN is_name(left(_text, -2))
        ELSE is_group_or_key(_text) END, false)
$$;

-- Whether a value is a whole number within bounds. 3.0 is none: qo-core refuses it too.
CREATE OR REPLACE FUNCTION is_within(_value jsonb, _least numeric, _most numeric) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN jsonb_typeof(_value) = 'number' AND (_value #>> '{}') ~ '^-?[0-9]+$' AND octet_length(_value #>> '{}') <= 20
        THEN (_value #>> '{}')::numeric BETWEEN _least AND _most ELSE false END
$$;

CREATE OR REPLACE FUNCTION name_rule() RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT 'must match [A-Za-z0-9_][A-Za-z0-9_.-]{0,{{NAME_REST_BYTES}}} and not be cluster'
$$;

-- What is wrong with a field that is present: a name, a key, a whole number. NULL if nothing is.
CREATE OR REPLACE FUNCTION name_mistake(_in jsonb, _field text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN coalesce(jsonb_typeof(_in->_field), 'null') <> 'null'
        AND NOT (jsonb_typeof(_in->_field) = 'string' AND is_name(_in->>_field))
        THEN invalid(_field, _in->>_field, name_rule()) END
$$;

CREATE OR REPLACE FUNCTION key_mistake(_in jsonb, _field text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN coalesce(jsonb_typeof(_in->_field), 'null') <> 'null'
        AND NOT (jsonb_typeof(_in->_field) = 'string' AND is_key(_in->>_field))
        THEN invalid(_field, _in->>_field, 'must be 1 to {{KEY_BYTES}} bytes without control characters, and not *') END
$$;

CREATE OR REPLACE FUNCTION number_mistake(_in jsonb, _field text, _least numeric, _most numeric) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN coalesce(jsonb_typeof(_in->_field), 'null') <> 'null' AND NOT is_within(_in->_field, _least, _most)
        THEN invalid(_field, _in->>_field, 'must be ' || _least || ' to ' || _most) END
$$;

-- Whether a number, as JSON writes it, is too large for a double: no worker could read it. The digits decide, because
-- SQL's numbers have other bounds. With 309 digits before the point it is computed as the workers' parser does: the
-- first digits that fit 64 bits, times a power of ten, as doubles. So f64::MAX passes, and is refused with more zeros
-- behind it.
CREATE OR REPLACE FUNCTION is_out_of_range(_number text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    _mantissa text := ltrim(split_part(lower(_number), 'e', 1), '-'); _exponent text := ltrim(split_part(lower(_number), 'e', 2), '+');
    _whole text := ltrim(split_part(_mantissa, '.', 1), '0'); _part text := split_part(_mantissa, '.', 2); _digits text; _size bigint; _first text;
BEGIN
    _digits := ltrim(_whole || _part, '0');
    IF _digits = '' OR left(_exponent, 1) = '-' AND length(ltrim(_exponent, '-0')) > 9 THEN RETURN false; END IF;
    IF length(ltrim(_exponent, '0')) > 9 THEN RETURN true; END IF;
    -- Digits before the point.
    _size := CASE WHEN _whole <> '' THEN length(_whole) ELSE length(_digits) - length(_part) END + coalesce(nullif(_exponent, ''), '0')::bigint;
    IF _size <> 309 THEN RETURN _size > 309; END IF;
    _first := left(_digits, 20);
    IF _first::numeric > 18446744073709551615 THEN _first := left(_digits, 19); END IF;
    BEGIN
        PERFORM _first::numeric::float8 * ('1e' || 309 - length(_first))::float8;
    EXCEPTION WHEN numeric_value_out_of_range THEN
        RETURN true;
    END;
    RETURN false;
END $$;

-- Which rule a text breaks that must be JSON as qo-core reads it; NULL if none. `_parsed`: PostgreSQL has parsed it.
CREATE OR REPLACE FUNCTION json_mistake(_text text, _parsed boolean) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE _bare text; _number text; _round integer := 0;
BEGIN
    IF octet_length(_text) > {{PAYLOAD_BYTES}} THEN
        RETURN 'must be at most {{PAYLOAD_BYTES}} bytes, has ' || octet_length(_text);
    END IF;
    IF NOT _parsed THEN
        BEGIN
            PERFORM _text::json;
        EXCEPTION
            WHEN statement_too_complex THEN RETURN 'must be nested at most {{JSON_DEPTH}} deep';
            WHEN OTHERS THEN RETURN 'must be JSON: ' || SQLERRM;
        END;
    END IF;
    -- The fast path accepts most texts. The others are examined without their strings.
    IF is_simple_json(_text) THEN RETURN NULL; END IF;
    IF replace(_text, E'\\\\', '') ~ (E'\\\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\\\u[dD][c-fC-F])'
        || E'|(?<!\\\\u[dD][89abAB][0-9a-fA-F]{2})\\\\u[dD][c-fC-F]') THEN
        RETURN 'must be JSON: half of a surrogate pair';
    END IF;
    _bare := regexp_replace(_text, E'"([^"\\\\]|\\\\.)*"', '', 'g');
    FOR _number IN SELECT m[1] FROM regexp_matches(_bare, '(-?[0-9][0-9.]*([eE][-+]?[0-9]+)?)', 'g') m
        WHERE length(m[1]) > 200 OR m[1] ~ '[eE]'
    LOOP
        IF is_out_of_range(_number) THEN RETURN 'must be JSON: ' || left(_number, 40) || ': number out of range'; END IF;
    END LOOP;
    -- Each round removes the innermost brackets.
    _bare := translate(regexp_replace(_bare, '[^][{}]+', '', 'g'), '{}', '[]');
    WHILE _bare <> '' AND _round < {{JSON_DEPTH}} LOOP
        _bare := replace(_bare, '[]', '');
        _round := _round + 1;
    END LOOP;
    RETURN CASE WHEN _bare <> '' THEN 'must be nested at most {{JSON_DEPTH}} deep' END;
END $$;

-- Fast path: true if JSON cannot be too deep (few brackets), has no number out of range (no large exponent, no long row
-- of digits) and no half of a surrogate pair (no such escape). False decides nothing.
CREATE OR REPLACE FUNCTION is_simple_json(_text text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT length(_text) - length(translate(_text, '[{', '')) <= {{JSON_DEPTH}}
       AND _text !~ E'[0-9][eE]\\+?[0-9][0-9][0-9]|\\\\u' AND (octet_length(_text) < 200 OR _text !~ '[0-9]{200}')
$$;

-- What is wrong with a backoff.
CREATE OR REPLACE FUNCTION retry_mistake(_retry jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE _other text;
BEGIN
    IF jsonb_typeof(_retry) <> 'object' THEN RETURN invalid('retry', _retry, 'must be an object: {"base_ms": 1000}'); END IF;
    SELECT k INTO _other FROM jsonb_object_keys(_retry) k WHERE k NOT IN ('base_ms', 'factor_percent', 'max_ms', 'jitter_percent') LIMIT 1;
    RETURN 'retry.' || coalesce(
        number_mistake(_retry, 'base_ms', 0, {{DURATION_MS}}), number_mistake(_retry, 'factor_percent', 100, 10000),
        number_mistake(_retry, 'max_ms', 0, {{DURATION_MS}}), number_mistake(_retry, 'jitter_percent', 0, 100),
        CASE WHEN 'null' = ANY (ARRAY(SELECT jsonb_typeof(e.value) FROM jsonb_each(_retry) e)) THEN invalid('', _retry, 'must be numbers') END,
        CASE WHEN coalesce((_retry->>'max_ms')::numeric, {{DEFAULT_RETRY_MAX_MS}}) < coalesce((_retry->>'base_ms')::numeric, {{DEFAULT_RETRY_BASE_MS}})
            THEN invalid('max_ms', coalesce(_retry->>'max_ms', '{{DEFAULT_RETRY_MAX_MS}}'),
                'must be at least base_ms, ' || coalesce(_retry->>'base_ms', '{{DEFAULT_RETRY_BASE_MS}}')) END,
        CASE WHEN _other IS NOT NULL THEN invalid(_other, _retry->>_other, 'is no part of a backoff') END);
END $$;

-- What is wrong with extra limits.
CREATE OR REPLACE FUNCTION extras_mistake(_limits jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE _extra record; _count bigint;
BEGIN
    IF jsonb_typeof(_limits) <> 'object' THEN RETURN invalid('limits', _limits, 'must be an object: {"NAME": SLOTS}'); END IF;
    SELECT count(*) INTO _count FROM jsonb_object_keys(_limits);
    IF _count > {{EXTRA_LIMITS}} THEN
        RETURN invalid('limits', _count, 'a job may have at most {{EXTRA_LIMITS}} extra limits');
    END IF;
    FOR _extra IN SELECT * FROM jsonb_each(_limits) LOOP
        IF NOT is_group_or_key(_extra.key) THEN
            RETURN invalid('limits', _extra.key, 'an extra limit must be NAME or NAME/KEY');
        ELSIF NOT is_within(_extra.value, 1, {{LIMIT}}) THEN
            RETURN invalid('limits[' || left(_extra.key, 80) || ']', _extra.value, 'must be 1 to {{LIMIT}}');
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

-- The first rule that a new job breaks by itself; NULL if none. Its payload is a text. `_parsed`: all payloads of the
-- call are JSON.
CREATE OR REPLACE FUNCTION mistake_of(_new jsonb, _parsed boolean) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE _field text; _mistake text;
BEGIN
    IF jsonb_typeof(_new->'id') IS DISTINCT FROM 'string' OR NOT is_uuid(_new->>'id') THEN
        RETURN invalid('id', coalesce(_new->>'id', ''), 'must be a UUID');
    ELSIF coalesce(jsonb_typeof(_new->'task'), 'null') = 'null' THEN
        RETURN invalid('task', ''::text, 'must be given: ' || name_rule());
    END IF;
    _mistake := coalesce(name_mistake(_new, 'task'), name_mistake(_new, 'queue'), name_mistake(_new, 'group'),
        name_mistake(_new, 'workflow'), key_mistake(_new, 'key'), key_mistake(_new, 'idempotency_key'),
        number_mistake(_new, 'priority', -2147483648, 2147483647), number_mistake(_new, 'cost', 1, {{LIMIT}}),
        number_mistake(_new, 'limit', 0, {{LIMIT}}), number_mistake(_new, 'max_attempts', 1, {{ATTEMPTS}}),
        number_mistake(_new, 'timeout_ms', 1, {{DURATION_MS}}));
    IF _mistake IS NOT NULL THEN RETURN _mistake; END IF;
    FOREACH _field IN ARRAY ARRAY['run_at', 'good_until'] LOOP
        IF number_mistake(_new, _field, 0, {{TIME_MS}}) IS NOT NULL THEN
            RETURN invalid(_field, _new->>_field, 'must be milliseconds between the years 1970 and 9999');
        END IF;
    END LOOP;
    IF (_new->>'good_until')::bigint <= (_new->>'run_at')::bigint THEN
        RETURN invalid('good_until', _new->>'good_until', 'must be after run_at, ' || (_new->>'run_at'));
    ELSIF coalesce(_new->>'on_limit', '{{DEFAULT_ON_LIMIT}}') NOT IN ({{ON_LIMIT}}) THEN
        RETURN invalid('on_limit', _new->>'on_limit', 'must be {{ON_LIMIT_WORDS}}');
    ELSIF coalesce(_new->>'on_failure', '{{DEFAULT_ON_FAILURE}}') NOT IN ({{ON_FAILURE}}) THEN
        RETURN invalid('on_failure', _new->>'on_failure', 'must be {{ON_FAILURE_WORDS}}');
    ELSIF _new ? 'clear_limit' AND jsonb_typeof(_new->'clear_limit') <> 'boolean' THEN
        RETURN invalid('clear_limit', _new->>'clear_limit', 'must be true or false');
    ELSIF (_new->>'clear_limit')::boolean AND _new->>'limit' IS NOT NULL THEN
        RETURN invalid('clear_limit', true, 'must not be set together with limit, ' || (_new->>'limit'));
    ELSIF coalesce(jsonb_typeof(_new->'traceparent'), 'null') <> 'null'
        AND NOT (jsonb_typeof(_new->'traceparent') = 'string' AND is_traceparent(_new->>'traceparent')) THEN
        RETURN invalid('traceparent', _new->>'traceparent', 'must be 00-TRACE-SPAN-FLAGS, with 32, 16 and 2 hexadecimal digits in '
            || 'lower case, and neither TRACE nor SPAN all zeros');
    ELSIF _new->>'on_failure' IS NOT NULL AND _new->>'workflow' IS NULL THEN
        RETURN invalid('on_failure', _new->>'on_failure', 'is for the steps of a workflow: name one');
    END IF;
    IF _new ? 'limits' THEN _mistake := extras_mistake(_new->'limits'); END IF;
    IF _mistake IS NULL AND _new ? 'retry' THEN _mistake := retry_mistake(_new->'retry'); END IF;
    IF _mistake IS NOT NULL THEN RETURN _mistake; END IF;
    SELECT k INTO _field FROM jsonb_object_keys(_new) k WHERE k NOT IN ('id', 'task', 'payload', 'queue', 'priority', 'run_at',
        'good_until', 'max_attempts', 'retry', 'timeout_ms', 'group', 'key', 'cost', 'limits', 'limit', 'clear_limit', 'idempotency_key',
        'on_limit', 'workflow', 'on_failure', 'traceparent') LIMIT 1;
    IF FOUND THEN RETURN invalid(left(_field, 80), _new->>_field, 'is no option of a job'); END IF;
    IF _new ? 'payload' THEN
        _mistake := CASE WHEN jsonb_typeof(_new->'payload') <> 'string' THEN 'must be a text of JSON'
                         ELSE json_mistake(_new->>'payload', _parsed) END;
        IF _mistake IS NOT NULL THEN RETURN invalid('payload', _new->>'payload', _mistake); END IF;
    END IF;
    RETURN NULL;
END $$;

-- Fast path: true if a new job, whose id is a UUID and whose payload is JSON, breaks no rule. False decides nothing.
CREATE OR REPLACE FUNCTION is_simple_job(_new jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(_new - ARRAY['id', 'task', 'payload', 'queue', 'key', 'group', 'idempotency_key', 'priority', 'cost', 'limit',
            'max_attempts', 'timeout_ms', 'run_at', 'workflow', 'traceparent'] = '{}'
        AND jsonb_typeof(_new->'id') = 'string' AND is_name(_new->>'task') AND jsonb_typeof(_new->'task') = 'string'
        AND (NOT _new ? 'payload' OR octet_length(_new->>'payload') <= {{PAYLOAD_BYTES}} AND is_simple_json(_new->>'payload')
            AND jsonb_typeof(_new->'payload') = 'string')
        AND (NOT _new ? 'queue' OR is_name(_new->>'queue') AND jsonb_typeof(_new->'queue') = 'string')
        AND (NOT _new ? 'group' OR is_name(_new->>'group') AND jsonb_typeof(_new->'group') = 'string')
        AND (NOT _new ? 'workflow' OR is_name(_new->>'workflow') AND jsonb_typeof(_new->'workflow') = 'string')
        AND (NOT _new ? 'key' OR is_key(_new->>'key') AND jsonb_typeof(_new->'key') = 'string')
        AND (NOT _new ? 'idempotency_key' OR is_key(_new->>'idempotency_key') AND jsonb_typeof(_new->'idempotency_key') = 'string')
        AND (NOT _new ? 'traceparent' OR is_traceparent(_new->>'traceparent') AND jsonb_typeof(_new->'traceparent') = 'string')
        AND (NOT _new ? 'priority' OR is_within(_new->'priority', -2147483648, 2147483647))
        AND (NOT _new ? 'cost' OR is_within(_new->'cost', 1, {{LIMIT}}))
        AND (NOT _new ? 'limit' OR is_within(_new->'limit', 0, {{LIMIT}}))
        AND (NOT _new ? 'max_attempts' OR is_within(_new->'max_attempts', 1, {{ATTEMPTS}}))
        AND (NOT _new ? 'timeout_ms' OR is_within(_new->'timeout_ms', 1, {{DURATION_MS}}))
        AND (NOT _new ? 'run_at' OR is_within(_new->'run_at', 0, {{TIME_MS}})), false)
$$;

-- Refuses a call if one of its jobs breaks a rule by itself, or if they are too many or too large together.
CREATE OR REPLACE FUNCTION check_jobs(_jobs jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _parsed boolean := true; _mistake text; _bytes bigint;
BEGIN
    IF jsonb_typeof(_jobs) IS DISTINCT FROM 'array' THEN
        PERFORM refuse('invalid', invalid('jobs', coalesce(jsonb_typeof(_jobs), 'null'), 'must be an array of objects'));
    ELSIF jsonb_array_length(_jobs) > {{SUBMIT_JOBS}} THEN
        PERFORM refuse('invalid', invalid('jobs', jsonb_array_length(_jobs), 'must be 0 to {{SUBMIT_JOBS}}'));
    END IF;
    SELECT invalid('jobs[' || j.i - 1 || ']', j.e, 'must be an object: {"task": "NAME"}') INTO _mistake
        FROM jsonb_array_elements(_jobs) WITH ORDINALITY j (e, i) WHERE jsonb_typeof(j.e) <> 'object' ORDER BY j.i LIMIT 1;
    IF _mistake IS NOT NULL THEN PERFORM refuse('invalid', _mistake); END IF;
    SELECT sum(octet_length(e->>'payload')) INTO _bytes FROM jsonb_array_elements(_jobs) e;
    IF _bytes > {{SUBMIT_BYTES}} THEN
        PERFORM refuse('invalid', invalid('payload', _bytes, 'must be at most {{SUBMIT_BYTES}} bytes in all'));
    END IF;
    -- All jobs at once. If one of them cannot be read, each is parsed again below, to find out which.
    BEGIN
        PERFORM (e->>'id')::uuid, (e->>'payload')::json FROM jsonb_array_elements(_jobs) e;
    EXCEPTION WHEN OTHERS THEN
        _parsed := false;
    END;
    SELECT 'jobs[' || m.i - 1 || '].' || m.mistake INTO _mistake FROM (
        SELECT j.i, mistake_of(j.e, _parsed) AS mistake FROM jsonb_array_elements(_jobs) WITH ORDINALITY j (e, i)
        WHERE NOT (_parsed AND is_simple_job(j.e)) OFFSET 0) m
        WHERE m.mistake IS NOT NULL ORDER BY m.i LIMIT 1;
    IF _mistake IS NOT NULL THEN PERFORM refuse('invalid', _mistake); END IF;
END $$;

-- Cuts a text that is too long, before the character that does not fit, as qo-core does. It is never refused: a worker
-- must always be able to settle.
CREATE OR REPLACE FUNCTION left_bytes(_text text, _most integer) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE _bytes bytea; _cut integer := _most;
BEGIN
    IF coalesce(octet_length(_text) <= _most, true) THEN RETURN _text; END IF;
    _bytes := convert_to(_text, 'UTF8');
    -- Continuation bytes of UTF-8 begin with the bits 10.
    WHILE _cut > 0 AND get_byte(_bytes, _cut) & 192 = 128 LOOP _cut := _cut - 1; END LOOP;
    RETURN convert_from(substr(_bytes, 1, _cut), 'UTF8');
END $$;

-- Refuses a call for its first mistake, if it has one.
CREATE OR REPLACE FUNCTION check_none(VARIADIC _mistakes text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _mistake text;
BEGIN
    FOREACH _mistake IN ARRAY _mistakes LOOP
        IF _mistake IS NOT NULL THEN PERFORM refuse('invalid', _mistake); END IF;
    END LOOP;
END $$;

-- The first rule that a filter of jobs breaks; NULL if none.
CREATE OR REPLACE FUNCTION filter_mistake(_filter jsonb) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(
        CASE WHEN replace(_filter->>'id_prefix', '-', '') !~ '^[0-9A-Fa-f]{1,32}$'
            THEN invalid('id_prefix', _filter->>'id_prefix', 'must be the beginning of a job''s id, as in 019a8a5e') END,
        number_mistake(_filter, 'submitted_from', -9223372036854775808, 9223372036854775807),
        number_mistake(_filter, 'submitted_before', -9223372036854775808, 9223372036854775807),
        CASE WHEN coalesce(jsonb_typeof(_filter->'newest_first'), 'boolean') NOT IN ('boolean', 'null')
            THEN invalid('newest_first', _filter->>'newest_first', 'must be true or false') END)
$$;

CREATE OR REPLACE FUNCTION group_mistake(_field text, _ref text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN NOT is_group(_ref) THEN
        invalid(_field, coalesce(_ref, ''), 'must be cluster, queue:NAME, GROUP, GROUP/KEY or GROUP/*') END
$$;

CREATE OR REPLACE FUNCTION slots_mistake(_field text, _slots bigint, _least bigint, _most bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN coalesce(_slots NOT BETWEEN _least AND _most, true) THEN
        invalid(_field, coalesce(_slots::text, 'null'), 'must be ' || _least || ' to ' || _most) END
$$;

-- What is wrong with a list of names.
CREATE OR REPLACE FUNCTION names_mistake(_in jsonb, _field text, _least integer) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE _list jsonb := coalesce(_in->_field, '[]'); _bad jsonb;
BEGIN
    IF jsonb_typeof(_list) <> 'array' THEN RETURN invalid(_field, _list, 'must be an array of names'); END IF;
    IF jsonb_array_length(_list) NOT BETWEEN _least AND {{SERVED}} THEN
        RETURN invalid(_field, jsonb_array_length(_list), 'must be ' || _least || ' to {{SERVED}}');
    END IF;
    SELECT e INTO _bad FROM jsonb_array_elements(_list) e WHERE jsonb_typeof(e) <> 'string' OR NOT is_name(e #>> '{}') LIMIT 1;
    RETURN CASE WHEN FOUND THEN invalid(_field, _bad #>> '{}', name_rule()) END;
END $$;

CREATE OR REPLACE FUNCTION missing_mistake(_in jsonb, VARIADIC _fields text[]) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT invalid(f, ''::text, 'must be given') FROM unnest(_fields) f WHERE coalesce(jsonb_typeof(_in->f), 'null') = 'null' LIMIT 1
$$;

CREATE OR REPLACE FUNCTION id_mistake(_in jsonb, _field text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN jsonb_typeof(_in->_field) <> 'string' OR NOT is_uuid(_in->>_field) THEN
        invalid(_field, _in->>_field, 'must be a UUID') END
$$;

CREATE OR REPLACE FUNCTION object_mistake(_field text, _in jsonb) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN jsonb_typeof(_in) IS DISTINCT FROM 'object' THEN invalid(_field, coalesce(_in::text, 'null'), 'must be an object') END
$$;

CREATE OR REPLACE FUNCTION check_session(_new jsonb) RETURNS void LANGUAGE sql AS $$
    SELECT check_none(object_mistake('session', _new), missing_mistake(_new, 'id', 'worker', 'tasks', 'lease_ms', 'permits'),
        id_mistake(_new, 'id'), name_mistake(_new, 'worker'), names_mistake(_new, 'queues', 0), names_mistake(_new, 'tasks', 1),
        number_mistake(_new, 'lease_ms', {{LEASE_MIN_MS}}, {{LEASE_MAX_MS}}), number_mistake(_new, 'permits', 1, {{LIMIT}}),
        CASE WHEN coalesce(jsonb_typeof(_new->'owner'), 'null') <> 'null' AND NOT is_token(_new->>'owner')
            THEN invalid('owner', _new->>'owner', token_rule()) END)
$$;

CREATE OR REPLACE FUNCTION is_token(_text text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(_text ~ '^[0-9a-z]{8}$', false)
$$;

CREATE OR REPLACE FUNCTION token_rule() RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT 'must be 8 characters of a-z and 0-9'
$$;

-- What is wrong with the scopes of a token.
CREATE OR REPLACE FUNCTION scopes_mistake(_scopes jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE _bad jsonb;
BEGIN
    IF jsonb_typeof(_scopes) <> 'array' OR _scopes = '[]' THEN
        RETURN invalid('scopes', _scopes, 'must name at least one of {{SCOPES_WORDS}}');
    END IF;
    SELECT e INTO _bad FROM jsonb_array_elements(_scopes) e
        WHERE jsonb_typeof(e) <> 'string' OR (e #>> '{}') NOT IN ({{SCOPES}}) LIMIT 1;
    RETURN CASE WHEN FOUND THEN invalid('scopes', _bad #>> '{}', 'must be {{SCOPES_WORDS}}') END;
END $$;

-- A token to create. What is wrong with its hash is said without the hash.
CREATE OR REPLACE FUNCTION check_token(_new jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM check_none(object_mistake('token', _new), missing_mistake(_new, 'id', 'name', 'hash', 'scopes'),
        CASE WHEN NOT is_token(_new->>'id') THEN invalid('id', _new->>'id', token_rule()) END,
        name_mistake(_new, 'name'), name_mistake(_new, 'app'),
        CASE WHEN _new->>'hash' !~ '^[0-9a-f]{64}$' THEN invalid('hash', '..'::text, 'must be 64 hexadecimal digits') END,
        CASE WHEN _new ? 'scopes' THEN scopes_mistake(_new->'scopes') END,
        number_mistake(_new, 'expires_at', 0, {{TIME_MS}}));
    IF coalesce(jsonb_typeof(_new->'queues'), 'null') <> 'null' THEN
        PERFORM check_none(names_mistake(_new, 'queues', 1));
        IF jsonb_array_length(_new->'queues') > {{TOKEN_QUEUES}} THEN
            PERFORM refuse('invalid', invalid('queues', jsonb_array_length(_new->'queues'), 'must name 1 to {{TOKEN_QUEUES}} queues'));
        END IF;
    END IF;
END $$;

-- What is wrong with a text for the audit log. Clients cut and clean theirs before they send them.
CREATE OR REPLACE FUNCTION audit_mistake(_field text, _text text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN octet_length(_text) > {{AUDIT_BYTES}} THEN invalid(_field, _text, 'must be at most {{AUDIT_BYTES}} bytes')
        WHEN _text IS NULL THEN invalid(_field, ''::text, 'must be given')
        WHEN _text ~ E'[\\u0001-\\u001f\\u007f-\\u009f]' THEN invalid(_field, _text, 'must not contain control characters') END
$$;

CREATE OR REPLACE FUNCTION check_deed(_deed jsonb) RETURNS void LANGUAGE sql AS $$
    SELECT check_none(object_mistake('deed', _deed), audit_mistake('by', _deed->>'by'), audit_mistake('what', _deed->>'what'),
        audit_mistake('on', _deed->>'on'), CASE WHEN _deed->>'before' IS NOT NULL THEN audit_mistake('before', _deed->>'before') END,
        CASE WHEN _deed->>'after' IS NOT NULL THEN audit_mistake('after', _deed->>'after') END)
$$;

CREATE OR REPLACE FUNCTION check_slot_request(_request jsonb) RETURNS void LANGUAGE sql AS $$
    SELECT check_none(object_mistake('request', _request), missing_mistake(_request, 'id', 'group', 'holder', 'lease_ms'),
        id_mistake(_request, 'id'), name_mistake(_request, 'holder'),
        CASE WHEN NOT is_group_or_key(_request->>'group') THEN invalid('group', _request->>'group', 'must be GROUP or GROUP/KEY') END,
        number_mistake(_request, 'slots', 1, {{LIMIT}}), number_mistake(_request, 'limit', 0, {{LIMIT}}),
        number_mistake(_request, 'lease_ms', {{LEASE_MIN_MS}}, {{LEASE_MAX_MS}}))
$$;

CREATE OR REPLACE FUNCTION task_mistake(_task jsonb) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(object_mistake('task', _task), missing_mistake(_task, 'task'), name_mistake(_task, 'task'),
        name_mistake(_task, 'group'), name_mistake(_task, 'app'), number_mistake(_task, 'max_concurrent', 0, {{LIMIT}}),
        number_mistake(_task, 'timeout_ms', 1, {{DURATION_MS}}),
        CASE WHEN coalesce(jsonb_typeof(_task->'retry'), 'null') <> 'null' THEN retry_mistake(_task->'retry') END)
$$;

CREATE OR REPLACE FUNCTION check_tasks(_tasks jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF jsonb_typeof(_tasks) IS DISTINCT FROM 'array' OR jsonb_array_length(_tasks) > {{SERVED}} THEN
        PERFORM refuse('invalid', invalid('tasks', coalesce(jsonb_typeof(_tasks), 'null'), 'must be an array of at most {{SERVED}}'));
    END IF;
    PERFORM check_none(VARIADIC ARRAY(SELECT 'tasks[' || t.i - 1 || '].' || task_mistake(t.e)
        FROM jsonb_array_elements(_tasks) WITH ORDINALITY t (e, i) ORDER BY t.i));
END $$;

-- What is wrong with a schedule. Every field is checked: one that a client cannot read would keep every worker of the
-- namespace from pushing its configuration. Whether a cron expression means anything only the client can tell.
CREATE OR REPLACE FUNCTION schedule_mistake(_spec jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE _mistake text; _field text;
BEGIN
    _mistake := coalesce(object_mistake('schedule', _spec), missing_mistake(_spec, 'cron', 'timezone', 'task'));
    IF _mistake IS NOT NULL THEN RETURN _mistake; END IF;
    FOR _field IN SELECT k FROM jsonb_object_keys(_spec) k LOOP
        IF _field NOT IN ('cron', 'timezone', 'task', 'payload', 'queue', 'priority', 'max_attempts', 'timeout_ms', 'missed', 'overlap') THEN
            RETURN invalid(_field, _spec->_field, 'is no part of a schedule');
        ELSIF _field <> 'timeout_ms' AND jsonb_typeof(_spec->_field) = 'null' THEN
            RETURN invalid(_field, 'null'::text, 'must be left out or given');
        END IF;
    END LOOP;
    FOREACH _field IN ARRAY ARRAY['cron', 'timezone'] LOOP
        IF jsonb_typeof(_spec->_field) <> 'string' OR octet_length(_spec->>_field) NOT BETWEEN 1 AND {{CRON_BYTES}} THEN
            RETURN invalid(_field, _spec->>_field, 'must be a text of 1 to {{CRON_BYTES}} bytes');
        END IF;
    END LOOP;
    _mistake := coalesce(name_mistake(_spec, 'task'), name_mistake(_spec, 'queue'),
        number_mistake(_spec, 'priority', -2147483648, 2147483647), number_mistake(_spec, 'max_attempts', 1, {{ATTEMPTS}}),
        number_mistake(_spec, 'timeout_ms', 1, {{DURATION_MS}}),
        CASE WHEN coalesce(jsonb_typeof(_spec->'missed') <> 'string' OR _spec->>'missed' NOT IN ({{MISSED}}), false)
            THEN invalid('missed', _spec->>'missed', 'must be {{MISSED_WORDS}}') END,
        CASE WHEN coalesce(jsonb_typeof(_spec->'overlap') <> 'boolean', false)
            THEN invalid('overlap', _spec->>'overlap', 'must be true or false') END);
    IF _mistake IS NULL AND _spec ? 'payload' THEN
        _mistake := CASE WHEN jsonb_typeof(_spec->'payload') <> 'string' THEN 'must be a text of JSON'
                         ELSE json_mistake(_spec->>'payload', false) END;
        IF _mistake IS NOT NULL THEN _mistake := invalid('payload', _spec->>'payload', _mistake); END IF;
    END IF;
    RETURN _mistake;
END $$;

CREATE OR REPLACE FUNCTION check_configuration(_configuration jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _part text; _e record;
BEGIN
    PERFORM check_none(coalesce(object_mistake('configuration', _configuration), name_mistake(_configuration, 'app')));
    FOREACH _part IN ARRAY ARRAY['limits', 'queue_priorities', 'schedules', 'retention'] LOOP
        CONTINUE WHEN coalesce(jsonb_typeof(_configuration->_part), 'null') = 'null';
        PERFORM check_none(object_mistake(_part, _configuration->_part));
        IF (SELECT count(*) FROM jsonb_object_keys(_configuration->_part)) > {{CONFIGURED}} THEN
            PERFORM refuse('invalid', _part || ': must be at most {{CONFIGURED}}');
        END IF;
        FOR _e IN SELECT f.key, f.value FROM jsonb_each(_configuration->_part) f LOOP
            PERFORM check_none(CASE _part
                WHEN 'limits' THEN coalesce(group_mistake('limits', _e.key), CASE WHEN NOT is_within(_e.value, 0, {{LIMIT}})
                    THEN invalid('limits[' || _e.key || ']', _e.value, 'must be 0 to {{LIMIT}}') END)
                WHEN 'queue_priorities' THEN CASE WHEN NOT is_name(_e.key) THEN invalid('queue', _e.key, name_rule())
                    WHEN NOT is_within(_e.value, 1, {{QUEUE_PRIORITY}})
                    THEN invalid('queues[' || _e.key || '].priority', _e.value, 'must be 1 to {{QUEUE_PRIORITY}}') END
                WHEN 'schedules' THEN CASE WHEN NOT is_name(_e.key) THEN invalid('schedule', _e.key, name_rule())
                    ELSE 'schedules[' || _e.key || '].' || schedule_mistake(_e.value) END
                ELSE CASE WHEN _e.key NOT IN ('succeeded_ms', 'failed_ms', 'cancelled_ms', 'expired_ms')
                    THEN invalid('retention', _e.key, 'must be succeeded_ms, failed_ms, cancelled_ms or expired_ms')
                    WHEN jsonb_typeof(_e.value) <> 'null' AND NOT is_within(_e.value, 0, {{DURATION_MS}})
                    THEN invalid('retention.' || _e.key, _e.value, 'must be 0 to {{DURATION_MS}}') END END);
        END LOOP;
    END LOOP;
END $$;

-- What an exchange asks for and brings. A settle that breaks a rule of its own is refused alone: see
-- `with_checked_settles`.
CREATE OR REPLACE FUNCTION check_exchange(_exchange jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _claim jsonb := coalesce(nullif(_exchange->'claim', 'null'), '{}'); _prefetch jsonb; _part text; _most integer;
BEGIN
    PERFORM check_none(object_mistake('exchange', _exchange), missing_mistake(_exchange, 'session', 'number'),
        id_mistake(_exchange, 'session'), number_mistake(_exchange, 'number', 1, 9223372036854775807),
        number_mistake(_exchange, 'free_permits', 0, {{LIMIT}}), number_mistake(_exchange, 'memory_percent', 0, 100), object_mistake('claim', _claim));
    _prefetch := nullif(_claim->'prefetch', 'null');
    PERFORM check_none(number_mistake(_claim, 'max', 0, {{CLAIM}}), number_mistake(_claim, 'max_claim_batch', 1, {{CLAIM}}),
        CASE WHEN _prefetch IS NOT NULL THEN coalesce(object_mistake('prefetch', _prefetch), missing_mistake(_prefetch, 'buffer', 'lease_ms'),
            number_mistake(_prefetch, 'buffer', 1, {{CLAIM}}), number_mistake(_prefetch, 'lease_ms', {{LEASE_MIN_MS}}, {{LEASE_MAX_MS}})) END,
        number_mistake(_exchange, 'idle_ms', {{LEASE_MIN_MS}}, {{LEASE_MAX_MS}}));
    FOREACH _part IN ARRAY ARRAY['settles', 'starts', 'progress'] LOOP
        CONTINUE WHEN coalesce(jsonb_typeof(_exchange->_part), 'null') = 'null';
        _most := CASE WHEN _part = 'progress' THEN {{PROGRESS}} ELSE {{SETTLES}} END;
        IF jsonb_typeof(_exchange->_part) <> 'array' OR jsonb_array_length(_exchange->_part) > _most THEN
            PERFORM refuse('invalid', invalid(_part, jsonb_typeof(_exchange->_part), 'must be an array of at most ' || _most));
        END IF;
        PERFORM check_none(VARIADIC ARRAY(SELECT _part || '[' || s.i - 1 || '].' || coalesce(object_mistake('it', s.e),
                missing_mistake(s.e, 'job', 'token'), id_mistake(s.e, 'job'), number_mistake(s.e, 'token', 0, 18446744073709551615),
                CASE WHEN _part = 'progress' THEN coalesce(missing_mistake(s.e, 'percent'), number_mistake(s.e, 'percent', 0, 100),
                    CASE WHEN coalesce(jsonb_typeof(s.e->'note'), 'string') <> 'string' OR octet_length(s.e->>'note') > {{NOTE_BYTES}}
                        THEN invalid('note', s.e->>'note', 'must be a text of at most {{NOTE_BYTES}} bytes') END) END)
            FROM jsonb_array_elements(_exchange->_part) WITH ORDINALITY s (e, i)));
    END LOOP;
END $$;

-- What is wrong with the outcome of an attempt, as its worker reports it.
CREATE OR REPLACE FUNCTION outcome_mistake(_said jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE _outcome text; _detail jsonb; _mistake text;
BEGIN
    IF jsonb_typeof(_said) = 'object' THEN
        SELECT k INTO _outcome FROM jsonb_object_keys(_said) k LIMIT 1;
        _detail := _said->_outcome;
    ELSIF jsonb_typeof(_said) = 'string' THEN
        _outcome := _said #>> '{}';
    END IF;
    IF coalesce(_outcome NOT IN ('succeed', 'retry', 'fail', 'snooze', 'release', 'cancelled'), true) THEN
        RETURN invalid('outcome', coalesce(_said::text, 'null'), 'must be succeed, retry, fail, snooze, release or cancelled');
    END IF;
    _mistake := CASE WHEN _outcome IN ('retry', 'snooze')
        THEN coalesce(missing_mistake(_detail, 'delay_ms'), number_mistake(_detail, 'delay_ms', 0, {{DURATION_MS}})) END;
    IF _mistake IS NULL AND _outcome = 'succeed' THEN
        _mistake := CASE WHEN jsonb_typeof(_detail->'output') IS DISTINCT FROM 'string' THEN 'must be a text of JSON'
                         ELSE json_mistake(_detail->>'output', false) END;
        IF _mistake IS NOT NULL THEN _mistake := invalid('output', coalesce(_detail->>'output', ''), _mistake); END IF;
    END IF;
    RETURN _mistake;
END $$;

-- What an exchange beside others asks for and brings, before it takes any lock. Its settles come as columns and are
-- checked together; the first mistake refuses the call.
CREATE OR REPLACE FUNCTION check_shared_exchange(
    _jobs uuid[], _tokens bigint[], _outcomes text[], _errors text[], _outputs text[], _delays bigint[], _max integer,
    _max_claim_batch integer, _free_permits integer, _memory_percent integer
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _settles integer := cardinality(_jobs); _mistake text; _parsed boolean := true;
BEGIN
    IF coalesce(_max NOT BETWEEN 0 AND {{CLAIM}} OR coalesce(_max_claim_batch, 1) NOT BETWEEN 1 AND {{CLAIM}} OR _free_permits NOT BETWEEN 0 AND {{LIMIT}}
        OR coalesce(_memory_percent, 0) NOT BETWEEN 0 AND 100
        OR _settles > {{SETTLES}} OR ARRAY[cardinality(_tokens), cardinality(_outcomes), cardinality(_errors), cardinality(_outputs),
            cardinality(_delays)] <> array_fill(_settles, ARRAY[5]), true) THEN
        PERFORM check_none(slots_mistake('max', _max, 0, {{CLAIM}}), slots_mistake('max_claim_batch', coalesce(_max_claim_batch, 1), 1, {{CLAIM}}),
            slots_mistake('free_permits', _free_permits, 0, {{LIMIT}}), slots_mistake('memory_percent', coalesce(_memory_percent, 0), 0, 100),
            slots_mistake('settles', _settles, 0, {{SETTLES}}),
            invalid('settles', _settles, 'must be columns of one length'));
    END IF;
    IF _settles = 0 THEN RETURN; END IF;
    SELECT 'settles[' || s.i - 1 || '].' || CASE
            WHEN coalesce(s.outcome NOT IN ('succeeded', 'retried', 'failed', 'snoozed', 'released', 'cancelled'), true)
                THEN invalid('outcome', coalesce(s.outcome, 'null'), 'must be succeeded, retried, failed, snoozed, released or cancelled')
            WHEN s.outcome = 'succeeded' THEN invalid('output', ''::text, 'must be given')
            ELSE invalid('delay_ms', coalesce(s.delay::text, 'null'), 'must be 0 to {{DURATION_MS}}, for what is retried or snoozed') END
        INTO _mistake FROM unnest(_outcomes, _outputs, _delays) WITH ORDINALITY s (outcome, output, delay, i)
        WHERE CASE s.outcome WHEN 'succeeded' THEN s.output IS NULL OR s.delay IS NOT NULL
            WHEN 'retried' THEN coalesce(s.delay NOT BETWEEN 0 AND {{DURATION_MS}}, true)
            WHEN 'snoozed' THEN coalesce(s.delay NOT BETWEEN 0 AND {{DURATION_MS}}, true)
            WHEN 'failed' THEN s.delay IS NOT NULL
            WHEN 'released' THEN s.delay IS NOT NULL
            WHEN 'cancelled' THEN s.delay IS NOT NULL ELSE true END
        ORDER BY s.i LIMIT 1;
    IF _mistake IS NOT NULL THEN PERFORM refuse('invalid', _mistake); END IF;
    IF NOT EXISTS (SELECT FROM unnest(_outputs) o WHERE o <> 'null') THEN RETURN; END IF;
    BEGIN
        PERFORM o::json FROM unnest(_outputs) o WHERE o <> 'null';
    EXCEPTION WHEN OTHERS THEN
        _parsed := false;
    END;
    SELECT 'settles[' || m.i - 1 || '].' || invalid('output', m.output, m.mistake) INTO _mistake FROM (
        SELECT s.i, s.output, json_mistake(s.output, _parsed) AS mistake FROM unnest(_outputs) WITH ORDINALITY s (output, i)
        WHERE s.output <> 'null' AND NOT (_parsed AND octet_length(s.output) <= {{PAYLOAD_BYTES}} AND is_simple_json(s.output)) OFFSET 0) m
        WHERE m.mistake IS NOT NULL ORDER BY m.i LIMIT 1;
    IF _mistake IS NOT NULL THEN PERFORM refuse('invalid', _mistake); END IF;
END $$;
