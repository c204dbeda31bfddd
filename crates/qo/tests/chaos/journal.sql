-- What the store did, recorded in the transactions that did it, so that the journal is exact.

CREATE TABLE journal (
    n    bigint GENERATED ALWAYS AS IDENTITY,
    xid  xid8 NOT NULL DEFAULT pg_current_xact_id(),
    -- Store time.
    at   bigint NOT NULL,
    what jsonb NOT NULL
);

-- An exchange changes the number last, so the answer is complete by then.
CREATE FUNCTION note_session() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE _reply jsonb;
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO journal (at, what) VALUES (NEW.opened_at, jsonb_build_object('opened',
            jsonb_build_object('session', NEW.session, 'lease_until', NEW.lease_until)));
    ELSIF TG_OP = 'UPDATE' THEN
        _reply := recorded_reply(NEW);
        INSERT INTO journal (at, what) VALUES ((_reply->>'now')::bigint, jsonb_build_object('exchanged',
            jsonb_build_object('session', NEW.session, 'reply', _reply)));
    ELSE
        -- A transaction that ends a session is alone in the namespace, and has set the clock.
        INSERT INTO journal (at, what) SELECT c.latest, jsonb_build_object('ended',
            jsonb_build_object('session', OLD.session, 'lease_until', OLD.lease_until)) FROM clock c;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER note_opened AFTER INSERT ON session FOR EACH ROW EXECUTE FUNCTION note_session();
CREATE TRIGGER note_exchanged AFTER UPDATE OF number ON session FOR EACH ROW
    WHEN (OLD.number <> NEW.number) EXECUTE FUNCTION note_session();
CREATE TRIGGER note_ended AFTER DELETE ON session FOR EACH ROW EXECUTE FUNCTION note_session();

CREATE FUNCTION note_job() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO journal (at, what) VALUES (NEW.submitted_at, jsonb_build_object('accepted', NEW.id));
    RETURN NULL;
END $$;
CREATE TRIGGER note_job AFTER INSERT ON job FOR EACH ROW EXECUTE FUNCTION note_job();

-- A transaction that sets a limit is alone in the namespace, too.
CREATE FUNCTION note_limit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO journal (at, what) SELECT c.latest, jsonb_build_object('limited',
        jsonb_build_object('group', NEW.ref, 'limit', NEW.operator)) FROM clock c;
    RETURN NULL;
END $$;
CREATE TRIGGER note_limit AFTER INSERT OR UPDATE OF operator ON limits FOR EACH ROW EXECUTE FUNCTION note_limit();
