-- The trace that a job belongs to (W3C Trace Context). NULL takes no space in a row.
ALTER TABLE job ADD COLUMN traceparent text COLLATE "C";
ALTER TABLE done ADD COLUMN traceparent text COLLATE "C";

-- With other parameters or columns. `99_doors.sql` opens the doors among them to the same roles again.
DROP FUNCTION IF EXISTS submit(text, jsonb, uuid, text, integer, timestamptz, timestamptz, integer, interval, text, text, integer, jsonb,
    integer, text, text, text, text, boolean);
DROP FUNCTION IF EXISTS api_exchange_shared(uuid, bigint, uuid[], bigint[], text[], text[], text[], bigint[], integer, integer, integer,
    boolean, integer);
