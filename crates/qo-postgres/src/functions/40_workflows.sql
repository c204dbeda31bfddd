-- Workflows: which step is next. It follows from the steps alone, so a submit need not lock anything that an exchange
-- uses.

-- The head: the first step that is not passed. It is the lowest live step, or an earlier one that ended and halts.
CREATE OR REPLACE FUNCTION head_of(_workflow text) RETURNS TABLE (step integer, seq bigint, id uuid, state job_state)
LANGUAGE sql STABLE AS $$
    SELECT s.* FROM (
        (SELECT j.step, j.seq, j.id, coalesce((SELECT h.state FROM owned_job h WHERE h.seq = j.seq), 'pending') FROM job j
            WHERE j.workflow = _workflow ORDER BY j.step LIMIT 1)
        UNION ALL
        (SELECT d.step, d.seq, d.id, d.state FROM done d
            WHERE d.workflow = _workflow AND d.state <> 'succeeded' AND NOT d.skipped
              AND EXISTS (SELECT FROM workflow w WHERE w.workflow = _workflow AND w.on_failure = 'halt' AND NOT w.cancelled)
            ORDER BY d.step LIMIT 1)
    ) s (step, seq, id, state) ORDER BY s.step LIMIT 1
$$;

-- A step of a workflow that runs, other than the given one.
CREATE OR REPLACE FUNCTION other_running_step(_workflow text, _seq bigint)
RETURNS TABLE (step integer, seq bigint, id uuid, state job_state) LANGUAGE sql STABLE AS $$
    SELECT j.step, j.seq, j.id, h.state FROM job j
    CROSS JOIN LATERAL (SELECT x.state FROM owned_job x WHERE x.seq = j.seq OFFSET 0) h
    WHERE j.workflow = _workflow AND h.state = 'running' AND j.seq <> _seq ORDER BY j.step LIMIT 1
$$;

-- Whether a job is no step, or the next step of its workflow: its head, while no other step runs.
CREATE OR REPLACE FUNCTION is_next(_workflow text, _seq bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN _workflow IS NULL
        OR ((SELECT h.seq FROM head_of(_workflow) h) = _seq AND NOT EXISTS (SELECT FROM other_running_step(_workflow, _seq)));
END $$;

-- After a step has changed: wakes the head if it is the next step.
CREATE OR REPLACE FUNCTION put_next_in_line(_now bigint, _workflow text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _head record;
BEGIN
    IF _workflow IS NULL THEN RETURN; END IF;
    SELECT * INTO _head FROM head_of(_workflow);
    IF _head.state = 'pending' AND is_next(_workflow, _head.seq) THEN
        UPDATE line SET parked_on = CASE WHEN run_at > _now THEN '@' END
            WHERE seq = _head.seq AND parked_on = '~' || _workflow;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION step_status(_step integer, _id uuid, _state job_state) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object('step', _step, 'job', _id, 'state', _state)
$$;
