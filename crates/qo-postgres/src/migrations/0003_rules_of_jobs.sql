-- What every claim relies upon is a constraint of the table: one row that breaks it would stop each worker that claims
-- it. (A class is `TASK GROUP COST EXTRA=SLOTS …`, split at its spaces, and a count of slots never falls below 0.)
--
-- The server checks constraints with every UPDATE, also of rows that were there before. So no row that breaks one may
-- stay: once the functions are there, `0003_validate.sql` fails such jobs and validates the constraints. `keeps_rules`
-- repeats them. The caps are those of the release that runs this step; a release that changes one has to change the
-- constraint too.
ALTER TABLE job
    ADD CONSTRAINT job_names CHECK (strpos(task, ' ') = 0 AND strpos(queue, ' ') = 0 AND strpos(grp, ' ') = 0
        AND strpos(grp, '/') = 0) NOT VALID,
    ADD CONSTRAINT job_cost CHECK (cost BETWEEN 1 AND {{LIMIT}}) NOT VALID,
    ADD CONSTRAINT job_limits CHECK (limits IS NULL OR jsonb_typeof(limits) = 'object' AND NOT limits @?
        '$.* ? (!(@.type() == "number") || @ < 1 || @ > {{LIMIT}} || @.floor() != @)') NOT VALID,
    ADD CONSTRAINT job_attempts CHECK (attempts_used >= 0 AND max_attempts >= 0 AND jsonb_typeof(attempts) = 'array') NOT VALID,
    ADD CONSTRAINT job_timeout CHECK (timeout_ms IS NULL OR timeout_ms BETWEEN 1 AND {{DURATION_MS}}) NOT VALID;

-- Big jobs by their date: only those that are due make exchanges run alone.
CREATE INDEX line_big_date ON line (run_at) WHERE big;

-- If an open transaction has the idempotency key of a due tick, the schedule is put off until this moment.
ALTER TABLE schedule ADD COLUMN put_off_until bigint;

-- A schedule names its time zone. Where none was stored it was UTC.
UPDATE schedule SET spec = spec || '{"timezone": "UTC"}' WHERE jsonb_typeof(spec) = 'object' AND spec->>'timezone' IS NULL;
UPDATE app_setting SET value = value || '{"timezone": "UTC"}'
    WHERE setting = 'schedule' AND jsonb_typeof(value) = 'object' AND value->>'timezone' IS NULL;
