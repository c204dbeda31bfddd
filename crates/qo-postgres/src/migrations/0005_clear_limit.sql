-- A row of `submit_limit` without a number clears the submit-side limit of its reference.
ALTER TABLE submit_limit ALTER COLUMN slots DROP NOT NULL;

-- `submit` has one more parameter. `99_doors.sql` opens the door to the same roles again.
DROP FUNCTION IF EXISTS submit(text, jsonb, uuid, text, integer, timestamptz, timestamptz, integer, interval, text, text, integer, jsonb,
    integer, text, text, text, text);

-- How full the memory of a session's worker is, in percent.
ALTER TABLE session ADD COLUMN memory_percent integer;

-- With other parameters.
DROP FUNCTION IF EXISTS matches(jsonb, job_state, text, text, text, text, text);
DROP FUNCTION IF EXISTS api_exchange_shared(uuid, bigint, uuid[], bigint[], text[], text[], text[], bigint[], integer, integer, integer, boolean);
DROP FUNCTION IF EXISTS check_shared_exchange(uuid[], bigint[], text[], text[], text[], bigint[], integer, integer, integer);
