-- A row of `submit_limit` without a number clears the submit-side limit of its reference.
ALTER TABLE submit_limit ALTER COLUMN slots DROP NOT NULL;

-- `submit` has one more parameter. `99_doors.sql` opens the door to the same roles again.
DROP FUNCTION IF EXISTS submit(text, jsonb, uuid, text, integer, timestamptz, timestamptz, integer, interval, text, text, integer, jsonb,
    integer, text, text, text, text);

-- With other parameters.
DROP FUNCTION IF EXISTS matches(jsonb, job_state, text, text, text, text, text);
