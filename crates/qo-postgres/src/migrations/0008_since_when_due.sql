-- Since when the jobs of the last reply were due.
ALTER TABLE session ADD COLUMN reply_dues bigint[];
ALTER TABLE session ALTER COLUMN reply_dues SET STORAGE EXTERNAL;

-- With another column. `99_doors.sql` opens it to the same roles again.
DROP FUNCTION IF EXISTS api_exchange_shared(uuid, bigint, uuid[], bigint[], text[], text[], text[], bigint[], integer, integer, integer,
    boolean, integer);
