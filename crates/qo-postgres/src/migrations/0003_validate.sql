-- Runs after the functions of this release are made.
SELECT fail_rule_breakers();
ALTER TABLE job VALIDATE CONSTRAINT job_names, VALIDATE CONSTRAINT job_cost, VALIDATE CONSTRAINT job_limits,
    VALIDATE CONSTRAINT job_attempts, VALIDATE CONSTRAINT job_timeout;
