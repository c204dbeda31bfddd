-- What every claim relies upon is a rule of the table, whoever writes to it: one row that breaks it would stop each worker
-- that comes upon it. (A lane is `TASK GROUP COST EXTRA=SLOTS`, told apart by spaces; counts of slots never fall below 0.)
-- Rows that are there already are not looked at.
ALTER TABLE job
    ADD CONSTRAINT job_names CHECK (strpos(task, ' ') = 0 AND strpos(queue, ' ') = 0 AND strpos(grp, ' ') = 0
        AND strpos(grp, '/') = 0) NOT VALID,
    ADD CONSTRAINT job_cost CHECK (cost BETWEEN 1 AND 1000000) NOT VALID,
    ADD CONSTRAINT job_limits CHECK (limits IS NULL OR jsonb_typeof(limits) = 'object' AND NOT limits @?
        '$.* ? (!(@.type() == "number") || @ < 1 || @ > 1000000 || @.floor() != @)') NOT VALID,
    ADD CONSTRAINT job_attempts CHECK (attempts_used >= 0 AND max_attempts >= 0 AND jsonb_typeof(attempts) = 'array') NOT VALID,
    ADD CONSTRAINT job_timeout CHECK (timeout_ms IS NULL OR timeout_ms BETWEEN 1 AND 315360000000) NOT VALID;
