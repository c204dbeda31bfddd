-- The tables of a namespace. Everything lives in one schema, which is the search path. Step 4 renames some of these
-- tables and columns; docs/glossary.md lists them as they are then.
--
-- | in step 1 | from step 4 on |
-- | --- | --- |
-- | `hold` | `owned_job` |
-- | `gate` | `effective_limit` |
-- | `extra` | `extra_limit` |
-- | `admission` | `submit_lock` |
-- | `line.lane`, `line.twin` | `line.class`, `line.extra_keys` |
--
-- A job is in exactly one of three tables: `line` while it is pending, `hold` while it is claimed or runs, `done` once
-- it has ended. What does not change while it lives is in `job`. So a claim deletes a small row and inserts a small
-- row, and touches neither the payload nor the indexes by which people find jobs.
--
-- Times are milliseconds of store time. Names and keys are compared by their bytes.

CREATE TYPE job_state AS ENUM ({{JOB_STATES}});

-- Acceptance numbers and fence tokens only grow. A number that a failed transaction has drawn is never used.
CREATE SEQUENCE acceptance AS bigint;
CREATE SEQUENCE fence_token AS bigint;

-- The latest store time that was recorded: if the server's clock is set back, store time does not go back further.
CREATE TABLE clock (
    latest   bigint NOT NULL,
    -- Where the sweep of `slots` continues.
    swept_to text COLLATE "C" NOT NULL DEFAULT ''
);
INSERT INTO clock VALUES (0);

-- Live jobs as they were submitted, with what is remembered of their attempts.
CREATE TABLE job (
    seq             bigint PRIMARY KEY,
    id              uuid NOT NULL,
    task            text COLLATE "C" NOT NULL,
    queue           text COLLATE "C" NOT NULL,
    grp             text COLLATE "C" NOT NULL,
    key             text COLLATE "C",
    cost            integer NOT NULL,
    limits          jsonb,
    priority        integer NOT NULL,
    submitted_at    bigint NOT NULL,
    run_at          bigint NOT NULL,
    good_until      bigint,
    max_attempts    integer NOT NULL,
    retry           jsonb,
    timeout_ms      bigint,
    submit_limit       integer,
    idempotency_key text COLLATE "C",
    workflow        text COLLATE "C",
    step            integer,
    skipped         boolean NOT NULL DEFAULT false,
    attempts_used   integer NOT NULL DEFAULT 0,
    attempts        jsonb NOT NULL DEFAULT '[]',
    payload         text NOT NULL
);
CREATE UNIQUE INDEX job_id ON job (id);
CREATE UNIQUE INDEX job_idempotency_key ON job (idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX job_group ON job (grp, key);
CREATE UNIQUE INDEX job_step ON job (workflow, step) WHERE workflow IS NOT NULL;
CREATE INDEX job_good_until ON job (good_until, seq) WHERE good_until IS NOT NULL;

-- The slots that live jobs take beyond their own group, queue and cluster: their extra limits.
CREATE TABLE extra (
    ref   text COLLATE "C" NOT NULL,
    seq   bigint NOT NULL,
    slots integer NOT NULL,
    PRIMARY KEY (ref, seq)
);
CREATE INDEX extra_job ON extra (seq);

-- Pending jobs. `lane` is all that decides where a job can run, but for its key; `twin` has the keys of its extra
-- limits. `parked_on` is why a job is not in line: '@' until its date, '~WORKFLOW' until it is the next step,
-- 'GROUP/KEY' until that key has room. A parked job costs claims nothing; the transaction that ends the reason puts it
-- back in line.
CREATE TABLE line (
    seq       bigint PRIMARY KEY,
    queue     text COLLATE "C" NOT NULL,
    task      text COLLATE "C" NOT NULL,
    lane      text COLLATE "C" NOT NULL,
    twin      text COLLATE "C" NOT NULL DEFAULT '',
    priority  integer NOT NULL,
    run_at    bigint NOT NULL,
    big       boolean NOT NULL,
    parked_on text COLLATE "C"
);
CREATE INDEX line_order ON line (queue, priority, run_at, seq) WHERE parked_on IS NULL;
CREATE INDEX line_lane ON line (queue, lane, priority, run_at, seq) WHERE parked_on IS NULL;
CREATE INDEX line_parked ON line (parked_on, queue, lane, twin, priority, run_at, seq) WHERE parked_on IS NOT NULL;
CREATE INDEX line_date ON line (run_at, seq) WHERE parked_on = '@';
CREATE INDEX line_big ON line (queue, lane, priority, run_at, seq) WHERE big;

-- A place in line.
CREATE TYPE place AS (queue text, priority integer, run_at bigint, seq bigint);

-- Fronts, and how they move: functions/45_front.sql. A deleted row stays in an index for as long as any transaction on
-- the server is open, and every claim would have to step over it.
CREATE TABLE front (
    queue         text COLLATE "C" PRIMARY KEY,
    priority      integer NOT NULL DEFAULT -2147483648,
    run_at        bigint NOT NULL DEFAULT -9223372036854775808,
    seq           bigint NOT NULL DEFAULT 0,
    next_priority integer NOT NULL,
    next_run_at   bigint NOT NULL,
    next_seq      bigint NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE early (
    queue text COLLATE "C" NOT NULL,
    seq   bigint NOT NULL
);
CREATE INDEX early_queue ON early (queue);
CREATE INDEX early_job ON early (seq);
CREATE TABLE era (
    n      bigint NOT NULL,
    began  bigint NOT NULL
) WITH (fillfactor = 50);
INSERT INTO era VALUES (1, 0);

-- Claimed and running jobs, and their owners. `until` is the end of the claim, or the timeout of a running job.
CREATE TABLE hold (
    seq      bigint PRIMARY KEY,
    state    job_state NOT NULL CHECK (state IN ('claimed', 'running')),
    session  uuid NOT NULL,
    worker   text COLLATE "C" NOT NULL,
    token    bigint NOT NULL,
    since    bigint NOT NULL,
    until    bigint,
    cancel   boolean NOT NULL DEFAULT false,
    progress jsonb
);
CREATE INDEX hold_session ON hold (session, token);
CREATE INDEX hold_until ON hold (until, token) WHERE until IS NOT NULL;

-- Jobs that have ended, until their retention is over. The first columns are those of `job`. The last attempt of most
-- jobs is stored in columns and not in `attempts`, which would cost more and is seldom asked for: see `attempts_of`.
CREATE TABLE done (
    LIKE job INCLUDING DEFAULTS,
    state        job_state NOT NULL,
    finished_at  bigint NOT NULL,
    output       text,
    last_token   bigint,
    last_worker  text COLLATE "C",
    last_session uuid,
    last_since   bigint,
    last_outcome text,
    last_error   text,
    PRIMARY KEY (seq)
);
CREATE UNIQUE INDEX done_id ON done (id);
CREATE UNIQUE INDEX done_idempotency_key ON done (idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE UNIQUE INDEX done_step ON done (workflow, step) WHERE workflow IS NOT NULL;
CREATE INDEX done_halting ON done (workflow, step)
    WHERE workflow IS NOT NULL AND state <> 'succeeded' AND NOT skipped;
CREATE INDEX done_finished ON done (state, (idempotency_key IS NOT NULL), finished_at, seq);

-- The sources of limits: operators and configurations; registered tasks; submitted jobs and programs. Submits only
-- insert into the last, so that a caller's open transaction locks nothing that a claim waits for; the newest row
-- counts.
CREATE TABLE limits (
    ref      text COLLATE "C" PRIMARY KEY,
    operator integer,
    config   integer
);
CREATE TABLE code_limit (
    task  text COLLATE "C" PRIMARY KEY,
    grp   text COLLATE "C" NOT NULL,
    slots integer NOT NULL,
    n     bigint GENERATED ALWAYS AS IDENTITY
);
CREATE INDEX code_limit_group ON code_limit (grp, n);
CREATE TABLE submit_limit (
    ref     text COLLATE "C" NOT NULL,
    n       bigint GENERATED ALWAYS AS IDENTITY,
    slots   integer NOT NULL,
    counted boolean NOT NULL DEFAULT false,
    PRIMARY KEY (ref, n)
);
CREATE INDEX submit_limit_new ON submit_limit (ref) WHERE NOT counted;

-- The limits that count, of exact references and of GROUP/*. `declared` comes from operators, configurations or tasks;
-- `submit` counts where `declared` is NULL.
CREATE TABLE gate (
    ref      text COLLATE "C" PRIMARY KEY,
    declared integer,
    submit   integer
);
CREATE INDEX gate_large ON gate (ref) WHERE coalesce(declared, submit) >= 100 AND strpos(ref, '/') = 0;
CREATE INDEX gate_keys ON gate (ref) WHERE strpos(ref, '/') > 0;
CREATE INDEX gate_closed ON gate (ref) WHERE declared = 0 OR declared IS NULL AND submit = 0;

-- Slots in use of groups that have a limit: a cache of what running jobs and programs hold, changed in the same
-- transaction. A group with a large limit has several rows, its shares, so that transactions that take and free slots
-- need not wait for each other. `used` and `most` are then parts of the slots in use and of the limit; no slot belongs
-- to a share. With one row, `most` is the limit, and `used` may be more while a lowered limit drains. With several,
-- each row keeps its own `most`, so all together keep the limit.
--
-- `is_full` is a column so that counting changes no index while it stays the same. It is false for keys: no query asks
-- for full keys.
CREATE TABLE slots (
    ref     text COLLATE "C" NOT NULL,
    share   integer NOT NULL DEFAULT 0,
    shares  integer NOT NULL DEFAULT 1,
    used    integer NOT NULL CHECK (used >= 0),
    most    integer NOT NULL,
    is_full boolean NOT NULL GENERATED ALWAYS AS (used >= most AND strpos(ref, '/') = 0) STORED,
    PRIMARY KEY (ref, share),
    CHECK (shares = 1 OR used <= most)
) WITH (fillfactor = 50);
CREATE INDEX slots_full ON slots (ref) WHERE is_full;

-- Submits with `reject` or `skip` lock a row of each group that they count, so that no two count at the same time.
CREATE TABLE admission (
    ref text COLLATE "C" PRIMARY KEY,
    n   bigint NOT NULL DEFAULT 0
);

CREATE TABLE task (
    task    text COLLATE "C" PRIMARY KEY,
    grp     text COLLATE "C",
    options jsonb NOT NULL
);
CREATE TABLE queue (
    queue    text COLLATE "C" PRIMARY KEY,
    priority integer,
    paused   boolean NOT NULL DEFAULT false
);
CREATE TABLE retention (
    state     job_state PRIMARY KEY,
    retain_ms bigint NOT NULL
);
INSERT INTO retention VALUES
    ('succeeded', {{RETAIN_MS}}), ('failed', {{RETAIN_FAILED_MS}}), ('cancelled', {{RETAIN_MS}}), ('expired', {{RETAIN_MS}});

-- A workflow; its steps are jobs. A submit locks its row to take the next number.
CREATE TABLE workflow (
    workflow   text COLLATE "C" PRIMARY KEY,
    on_failure text NOT NULL,
    cancelled  boolean NOT NULL DEFAULT false,
    steps      integer NOT NULL DEFAULT 0
);

CREATE TABLE schedule (
    schedule text COLLATE "C" PRIMARY KEY,
    spec     jsonb NOT NULL,
    enabled  boolean NOT NULL DEFAULT true,
    next     bigint,
    last     jsonb,
    last_job uuid
);

CREATE TABLE session (
    session      uuid PRIMARY KEY,
    worker       text COLLATE "C" NOT NULL,
    queues       text[] COLLATE "C" NOT NULL,
    tasks        text[] COLLATE "C" NOT NULL,
    lease_ms     bigint NOT NULL,
    permits      integer NOT NULL,
    opened_at    bigint NOT NULL,
    lease_until  bigint NOT NULL,
    free_permits integer NOT NULL,
    draining     boolean NOT NULL DEFAULT false,
    number       bigint NOT NULL DEFAULT 0,
    -- The last reply. Of an exchange that ran alone it is stored as it was. Of one beside others it can be built again
    -- from columns: if all settles succeeded, their number is enough; first attempts, and jobs without timeout or
    -- backoff, need no column.
    reply           jsonb,
    reply_now       bigint,
    reply_succeeded integer,
    reply_settled   text[],
    reply_seqs      bigint[],
    reply_tokens    bigint[],
    reply_attempts  integer[],
    reply_timeouts  bigint[],
    reply_retries   jsonb[]
);
-- Written with every exchange and hardly ever read: compression is not worth its time.
ALTER TABLE session ALTER COLUMN reply_seqs SET STORAGE EXTERNAL, ALTER COLUMN reply_tokens SET STORAGE EXTERNAL;
CREATE INDEX session_lease ON session (lease_until);
CREATE TABLE ended_session (
    session  uuid PRIMARY KEY,
    ended_at bigint NOT NULL
);
CREATE INDEX ended_session_moment ON ended_session (ended_at, session);

-- Jobs that a session is told to stop with its next exchange.
CREATE TABLE stop (
    session uuid NOT NULL,
    token   bigint NOT NULL,
    job     uuid NOT NULL,
    reason  text NOT NULL,
    PRIMARY KEY (session, token)
);

-- Slots that programs hold.
CREATE TABLE program (
    lease  uuid PRIMARY KEY,
    ref    text COLLATE "C" NOT NULL,
    slots  integer NOT NULL,
    holder text COLLATE "C" NOT NULL,
    token  bigint NOT NULL,
    since  bigint NOT NULL,
    until  bigint NOT NULL
);
CREATE INDEX program_until ON program (until, token);
CREATE INDEX program_ref ON program (ref);

CREATE TABLE attempt_log (
    token bigint PRIMARY KEY,
    log   bytea NOT NULL
);
