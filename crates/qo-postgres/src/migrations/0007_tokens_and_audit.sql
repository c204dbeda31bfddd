-- What a bearer of a token may do. `spec` is the token as it was created, with the hash of its secret and never the
-- secret. Roles that read the other tables do not read this one: see 99_doors.sql.
CREATE TABLE token (
    token      text COLLATE "C" PRIMARY KEY,
    name       text COLLATE "C" NOT NULL UNIQUE,
    expires_at bigint,
    created_at bigint NOT NULL,
    spec       jsonb NOT NULL
);

-- What operators did. Numbers have no gaps.
CREATE TABLE audit_entry (
    number bigint PRIMARY KEY,
    at     bigint NOT NULL,
    deed   jsonb NOT NULL
);

-- The token that opened a session.
ALTER TABLE session ADD COLUMN owner text COLLATE "C";
