-- Since when the jobs of the last reply were due.
ALTER TABLE session ADD COLUMN reply_dues bigint[];
ALTER TABLE session ALTER COLUMN reply_dues SET STORAGE EXTERNAL;

-- With another column. `99_doors.sql` opens it to the same roles again.
DROP FUNCTION IF EXISTS api_exchange_shared(uuid, bigint, uuid[], bigint[], text[], text[], text[], bigint[], integer, integer, integer,
    boolean, integer);

-- How often slots of a reference were taken and refused since it has had a limit: see functions/55_totals.sql.
CREATE TABLE total (
    ref      text COLLATE "C" PRIMARY KEY,
    acquired bigint NOT NULL DEFAULT 0,
    rejected bigint NOT NULL DEFAULT 0
);
CREATE TABLE grants (
    n    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    refs text[] COLLATE "C" NOT NULL,
    jobs bigint[] NOT NULL
);
CREATE TABLE refusal (
    ref text COLLATE "C" NOT NULL,
    n   bigint NOT NULL DEFAULT nextval(pg_get_serial_sequence('submit_limit', 'n')::regclass)
);
CREATE INDEX refusal_ref ON refusal (ref);
-- The newest row of `grants` that is in `total`.
CREATE TABLE summed (n bigint NOT NULL);
INSERT INTO summed VALUES (0);
