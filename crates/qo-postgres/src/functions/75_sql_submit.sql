-- Submit from SQL: any language can enqueue inside its own transaction. The job is there when that commits, and never was
-- if it does not. With `on_limit` 'reject' or 'skip' the transaction holds the turn of the group that is counted until it
-- ends; at REPEATABLE READ and SERIALIZABLE it fails with 40001 where another one was faster, and never admits too many.

CREATE OR REPLACE FUNCTION is_name(_text text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(_text ~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$' AND _text <> 'cluster', false)
$$;

CREATE OR REPLACE FUNCTION is_key(_text text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(octet_length(_text) BETWEEN 1 AND 256 AND _text <> '*' AND _text !~ '[\u0001-\u001f\u007f-\u009f]', false)
$$;

-- Whether a value is a whole number between two others.
CREATE OR REPLACE FUNCTION is_within(_value jsonb, _least numeric, _most numeric) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN jsonb_typeof(_value) = 'number'
        THEN (_value #>> '{}')::numeric BETWEEN _least AND _most AND (_value #>> '{}') ~ '^-?[0-9]+$' ELSE false END
$$;

-- The first rule that a job breaks by itself; none if it keeps them all.
CREATE OR REPLACE FUNCTION mistake_of(_new jsonb) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE _field record; _name text := 'must match [A-Za-z0-9_][A-Za-z0-9_.-]{0,127} and not be cluster'; _extra record;
BEGIN
    IF jsonb_typeof(_new) <> 'object' THEN RETURN invalid('job', _new, 'must be an object'); END IF;
    IF NOT is_name(_new->>'task') THEN RETURN invalid('task', coalesce(_new->>'task', ''), _name); END IF;
    FOR _field IN SELECT f.key, f.value, f.value #>> '{}' AS text FROM jsonb_each(_new) f WHERE f.value <> 'null' LOOP
        IF _field.key = 'id' AND _field.text !~* '^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$' THEN
            RETURN invalid('id', _field.text, 'must be a UUID');
        ELSIF _field.key IN ('queue', 'group', 'workflow') AND NOT is_name(_field.text) THEN
            RETURN invalid(_field.key, _field.text, _name);
        ELSIF _field.key IN ('key', 'idempotency_key') AND NOT is_key(_field.text) THEN
            RETURN invalid(_field.key, _field.text, 'must be 1 to 256 bytes without control characters, and not *');
        ELSIF _field.key = 'priority' AND NOT is_within(_field.value, -2147483648, 2147483647) THEN
            RETURN invalid('priority', _field.text, 'must be -2147483648 to 2147483647');
        ELSIF _field.key = 'cost' AND NOT is_within(_field.value, 1, 1000000) THEN
            RETURN invalid('cost', _field.text, 'must be 1 to 1000000');
        ELSIF _field.key = 'limit' AND NOT is_within(_field.value, 0, 1000000) THEN
            RETURN invalid('limit', _field.text, 'must be 0 to 1000000');
        ELSIF _field.key = 'max_attempts' AND NOT is_within(_field.value, 1, 1000) THEN
            RETURN invalid('max_attempts', _field.text, 'must be 1 to 1000');
        ELSIF _field.key = 'timeout_ms' AND NOT is_within(_field.value, 1, 315360000000) THEN
            RETURN invalid('timeout_ms', _field.text, 'must be 1 to 315360000000');
        ELSIF _field.key IN ('run_at', 'good_until') AND NOT is_within(_field.value, 0, 253402300799999) THEN
            RETURN invalid(_field.key, _field.text, 'must lie between the years 1970 and 9999');
        ELSIF _field.key = 'on_limit' AND _field.text NOT IN ('wait', 'reject', 'skip') THEN
            RETURN invalid('on_limit', _field.text, 'must be wait, reject or skip');
        ELSIF _field.key = 'on_failure' AND _field.text NOT IN ('halt', 'continue') THEN
            RETURN invalid('on_failure', _field.text, 'must be halt or continue');
        ELSIF _field.key = 'on_failure' AND _new->>'workflow' IS NULL THEN
            RETURN invalid('on_failure', _field.text, 'is for the steps of a workflow: name one');
        ELSIF _field.key = 'payload' AND octet_length(_field.text) > 1048576 THEN
            RETURN invalid('payload', octet_length(_field.text), 'must be at most 1048576 bytes');
        ELSIF _field.key = 'limits' AND jsonb_typeof(_field.value) <> 'object' THEN
            RETURN invalid('limits', _field.text, 'must be an object: {"NAME": SLOTS}');
        ELSIF _field.key = 'limits' THEN
            IF (SELECT count(*) FROM jsonb_object_keys(_field.value)) > 12 THEN
                RETURN invalid('limits', _field.text, 'a job may have at most 12 extra limits');
            END IF;
            FOR _extra IN SELECT * FROM jsonb_each(_field.value) LOOP
                IF NOT is_name(split_part(_extra.key, '/', 1))
                    OR strpos(_extra.key, '/') > 0 AND NOT is_key(substr(_extra.key, strpos(_extra.key, '/') + 1)) THEN
                    RETURN invalid('limits', _extra.key, 'an extra limit must be NAME or NAME/KEY');
                ELSIF NOT is_within(_extra.value, 1, 1000000) THEN
                    RETURN invalid('limits[' || _extra.key || ']', _extra.value, 'must be 1 to 1000000');
                END IF;
            END LOOP;
        ELSIF _field.key NOT IN ('id', 'task', 'payload', 'queue', 'priority', 'run_at', 'good_until', 'max_attempts',
            'timeout_ms', 'group', 'key', 'cost', 'limits', 'limit', 'idempotency_key', 'on_limit', 'workflow', 'on_failure') THEN
            RETURN invalid(_field.key, left(_field.text, 80), 'is no option of a job');
        END IF;
    END LOOP;
    IF (_new->>'good_until')::bigint <= (_new->>'run_at')::bigint THEN
        RETURN invalid('good_until', _new->>'good_until', 'must be after run_at');
    END IF;
    RETURN NULL;
END $$;

-- Checks jobs as SQL brings them, gives them ids, and stores them.
CREATE OR REPLACE FUNCTION submit_checked(_jobs jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE _mistake text; _ready jsonb;
BEGIN
    IF jsonb_typeof(_jobs) <> 'array' OR jsonb_array_length(_jobs) > 10000 THEN
        PERFORM refuse('invalid', 'jobs: must be an array of at most 10000');
    END IF;
    SELECT jsonb_agg(jsonb_strip_nulls(j.e - 'payload') || jsonb_build_object('id', coalesce(j.e->>'id', gen_random_uuid()::text),
               'payload', coalesce((j.e->'payload')::text, 'null')) ORDER BY j.i)
    INTO _ready FROM jsonb_array_elements(_jobs) WITH ORDINALITY j (e, i);
    SELECT 'jobs[' || j.i - 1 || '].' || mistake_of(j.e) INTO _mistake
        FROM jsonb_array_elements(_ready) WITH ORDINALITY j (e, i) WHERE mistake_of(j.e) IS NOT NULL ORDER BY j.i LIMIT 1;
    IF _mistake IS NOT NULL THEN PERFORM refuse('invalid', _mistake); END IF;
    IF (SELECT sum(octet_length(e->>'payload')) FROM jsonb_array_elements(_ready) e) > 8388608 THEN
        PERFORM refuse('invalid', 'payload: must be at most 8388608 bytes in all');
    END IF;
    PERFORM ring('job');
    RETURN submit_all(store_time(), coalesce(_ready, '[]'));
END $$;

-- Stores a job and answers with its id; null if it was skipped. Times are timestamps, everything else is as in NDJSON.
CREATE OR REPLACE FUNCTION submit(
    task text, payload jsonb DEFAULT 'null', id uuid DEFAULT NULL, queue text DEFAULT NULL, priority integer DEFAULT NULL,
    run_at timestamptz DEFAULT NULL, good_until timestamptz DEFAULT NULL, max_attempts integer DEFAULT NULL,
    timeout interval DEFAULT NULL, "group" text DEFAULT NULL, key text DEFAULT NULL, cost integer DEFAULT NULL,
    limits jsonb DEFAULT NULL, "limit" integer DEFAULT NULL, idempotency_key text DEFAULT NULL, on_limit text DEFAULT NULL,
    workflow text DEFAULT NULL, on_failure text DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE _answer jsonb;
BEGIN
    _answer := submit_checked(jsonb_build_array(jsonb_strip_nulls(jsonb_build_object(
        'task', task, 'id', id, 'queue', queue, 'priority', priority, 'run_at', millis(run_at), 'good_until', millis(good_until),
        'max_attempts', max_attempts, 'timeout_ms', (extract(epoch FROM timeout) * 1000)::bigint, 'group', "group", 'key', key,
        'cost', cost, 'limits', limits, 'limit', "limit", 'idempotency_key', idempotency_key, 'on_limit', on_limit,
        'workflow', workflow, 'on_failure', on_failure)) || jsonb_build_object('payload', payload)))->0;
    IF _answer ? 'Err' THEN PERFORM refuse(_answer->'Err'->>'kind', _answer->'Err'->>'message'); END IF;
    RETURN (_answer->'Ok'->>'job')::uuid;
END $$;

CREATE OR REPLACE FUNCTION millis(_moment timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT (extract(epoch FROM _moment) * 1000)::bigint
$$;

-- Stores many jobs, objects like the lines of NDJSON, and says of each what became of it: accepted, existing, skipped, or
-- the error that refused it. One that breaks a rule refuses them all.
CREATE OR REPLACE FUNCTION submit_many(jobs jsonb)
RETURNS TABLE (place integer, outcome text, job uuid, error text) LANGUAGE plpgsql AS $$
DECLARE _answers jsonb;
BEGIN
    _answers := submit_checked(jobs);
    RETURN QUERY SELECT a.i::integer, coalesce(a.e->'Ok'->>'outcome', a.e->'Err'->>'kind'), (a.e->'Ok'->>'job')::uuid,
        a.e->'Err'->>'message' FROM jsonb_array_elements(_answers) WITH ORDINALITY a (e, i);
END $$;
