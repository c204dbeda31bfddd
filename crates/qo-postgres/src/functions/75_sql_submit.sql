-- Submit from SQL: any language can submit inside its own transaction. The job is there when that commits. With
-- `on_limit` 'reject' or 'skip' the transaction holds the rows of the counted group in `submit_lock` until it ends; at
-- REPEATABLE READ and SERIALIZABLE it fails with 40001 if another one has counted meanwhile, and never accepts too many
-- jobs.

-- A job as clients send it, from one as SQL brings it: with an id, its payload as text, without nulls.
CREATE OR REPLACE FUNCTION as_sent(_job jsonb) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN jsonb_typeof(_job) <> 'object' THEN _job ELSE
        coalesce((SELECT jsonb_object_agg(f.key, f.value) FROM jsonb_each(_job) f WHERE f.value <> 'null'), '{}')
        || jsonb_build_object('id', coalesce(nullif(_job->'id', 'null'), to_jsonb(gen_random_uuid())),
                              'payload', coalesce((_job->'payload')::text, 'null')) END
$$;

-- Checks jobs as SQL brings them, gives them ids, and stores them.
CREATE OR REPLACE FUNCTION submit_checked(_jobs jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE _sent jsonb := _jobs;
BEGIN
    -- Anything but an array of a permitted size goes to `check_jobs` as it is, which refuses it.
    IF jsonb_typeof(_jobs) = 'array' AND jsonb_array_length(_jobs) <= {{SUBMIT_JOBS}} THEN
        SELECT coalesce(jsonb_agg(as_sent(j.e) ORDER BY j.i), '[]') INTO _sent FROM jsonb_array_elements(_jobs) WITH ORDINALITY j (e, i);
    END IF;
    PERFORM check_jobs(_sent);
    PERFORM notify_listeners('job');
    RETURN submit_all(store_time(), _sent);
END $$;

-- Stores a job and returns its id; NULL if it was skipped. Times are timestamps, all else is as in NDJSON.
CREATE OR REPLACE FUNCTION submit(
    task text, payload jsonb DEFAULT 'null', id uuid DEFAULT NULL, queue text DEFAULT NULL, priority integer DEFAULT NULL,
    run_at timestamptz DEFAULT NULL, good_until timestamptz DEFAULT NULL, max_attempts integer DEFAULT NULL,
    timeout interval DEFAULT NULL, "group" text DEFAULT NULL, key text DEFAULT NULL, cost integer DEFAULT NULL,
    limits jsonb DEFAULT NULL, "limit" integer DEFAULT NULL, idempotency_key text DEFAULT NULL, on_limit text DEFAULT NULL,
    workflow text DEFAULT NULL, on_failure text DEFAULT NULL, clear_limit boolean DEFAULT NULL,
    traceparent text DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE _answer jsonb;
BEGIN
    _answer := submit_checked(jsonb_build_array(jsonb_build_object(
        'task', task, 'id', id, 'queue', queue, 'priority', priority, 'run_at', millis(run_at), 'good_until', millis(good_until),
        'max_attempts', max_attempts, 'timeout_ms', millis(timeout), 'group', "group", 'key', key,
        'cost', cost, 'limits', limits, 'limit', "limit", 'idempotency_key', idempotency_key, 'on_limit', on_limit,
        'clear_limit', clear_limit, 'workflow', workflow, 'on_failure', on_failure, 'payload', payload,
        'traceparent', traceparent)))->0;
    IF _answer ? 'Err' THEN PERFORM refuse(_answer->'Err'->>'kind', _answer->'Err'->>'message'); END IF;
    RETURN (_answer->'Ok'->>'job')::uuid;
END $$;

-- Infinity becomes a number beyond every bound, so that a check refuses it.
CREATE OR REPLACE FUNCTION millis(_moment timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN isfinite(_moment) THEN floor(extract(epoch FROM _moment) * 1000)::bigint
        WHEN _moment > 'epoch' THEN 9223372036854775807 ELSE -1 END WHERE _moment IS NOT NULL
$$;

CREATE OR REPLACE FUNCTION millis(_time interval) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN isfinite(_time) THEN floor(extract(epoch FROM _time) * 1000)::bigint
        WHEN _time > '0' THEN 9223372036854775807 ELSE -1 END WHERE _time IS NOT NULL
$$;

-- Stores many jobs, objects like the lines of NDJSON, and returns what became of each: accepted, existing, skipped, or
-- the kind of error that refused it. One that breaks a rule refuses them all.
CREATE OR REPLACE FUNCTION submit_many(jobs jsonb)
RETURNS TABLE (place integer, outcome text, job uuid, error text) LANGUAGE plpgsql AS $$
DECLARE _answers jsonb;
BEGIN
    _answers := submit_checked(jobs);
    RETURN QUERY SELECT a.i::integer, coalesce(a.e->'Ok'->>'outcome', a.e->'Err'->>'kind'), (a.e->'Ok'->>'job')::uuid,
        a.e->'Err'->>'message' FROM jsonb_array_elements(_answers) WITH ORDINALITY a (e, i);
END $$;
