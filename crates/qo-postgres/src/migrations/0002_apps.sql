-- Apps: services that share the namespace. Each pushes its own configuration and registrations, and replaces nothing of
-- other apps. What was stored before this step belongs to the app `default`.

-- Apps whose configuration says something. The app with the greatest `place` (from step 4 on: `n`) is the newest, and
-- counts where several name the same.
CREATE TABLE app (
    app   text COLLATE "C" PRIMARY KEY,
    place bigint NOT NULL
);

-- What their configurations say. `setting` is limit, queue_priority, schedule or retention. What counts of it is in the
-- tables `limits`, `queue`, `schedule` and `retention`.
CREATE TABLE app_setting (
    app     text COLLATE "C" NOT NULL,
    setting text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,
    value   jsonb NOT NULL,
    PRIMARY KEY (app, setting, name)
);
CREATE INDEX app_setting_name ON app_setting (setting, name);

-- What their code registered. What counts of it is in the table `task`.
CREATE TABLE registration (
    task    text COLLATE "C" NOT NULL,
    app     text COLLATE "C" NOT NULL,
    options jsonb NOT NULL,
    PRIMARY KEY (task, app)
);

-- The last pushes that changed something.
CREATE TABLE push (
    n         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pushed_at bigint NOT NULL,
    app       text COLLATE "C" NOT NULL,
    changes   jsonb NOT NULL,
    unlisted  bigint NOT NULL DEFAULT 0
);

-- The app whose configuration gives `config`.
ALTER TABLE limits ADD COLUMN config_app text COLLATE "C";
ALTER TABLE code_limit ADD COLUMN app text COLLATE "C" NOT NULL DEFAULT '{{DEFAULT_APP}}';
ALTER TABLE code_limit DROP CONSTRAINT code_limit_pkey;
ALTER TABLE code_limit ADD PRIMARY KEY (task, app);

UPDATE limits SET config_app = '{{DEFAULT_APP}}' WHERE config IS NOT NULL;
INSERT INTO app_setting SELECT '{{DEFAULT_APP}}', 'limit', l.ref, to_jsonb(l.config) FROM limits l WHERE l.config IS NOT NULL;
INSERT INTO app_setting SELECT '{{DEFAULT_APP}}', 'queue_priority', q.queue, to_jsonb(q.priority) FROM queue q WHERE q.priority IS NOT NULL;
INSERT INTO app_setting SELECT '{{DEFAULT_APP}}', 'schedule', s.schedule, s.spec FROM schedule s;
INSERT INTO app_setting SELECT '{{DEFAULT_APP}}', 'retention', r.state::text, to_jsonb(r.retain_ms) FROM retention r
    WHERE r.retain_ms <> CASE r.state WHEN 'failed' THEN {{RETAIN_FAILED_MS}} ELSE {{RETAIN_MS}} END;
INSERT INTO app SELECT '{{DEFAULT_APP}}', 1 WHERE EXISTS (SELECT FROM app_setting);
INSERT INTO registration SELECT t.task, '{{DEFAULT_APP}}', t.options FROM task t;

-- These two return what a push changed from now on. A function cannot be replaced by one of another return type.
DROP FUNCTION IF EXISTS api_register(jsonb);
DROP FUNCTION IF EXISTS api_configure(jsonb, jsonb);
