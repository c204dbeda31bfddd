-- Tokens and the audit log. No function here takes the namespace lock or writes a row that an exchange reads, so no
-- exchange waits for one of them.

-- Takes the lock of the audit log, until the commit, and returns the moment of the next entry. Entries have no gaps
-- between their numbers, and tokens are counted, so one transaction at a time writes here.
CREATE OR REPLACE FUNCTION lock_audit_log() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    PERFORM check_isolation();
    PERFORM pg_advisory_xact_lock((29551::bigint << 32) | 'audit_entry'::regclass::oid::bigint);
    -- A clock that falls must not put an entry before the one that it follows.
    RETURN greatest(store_time(), (SELECT e.at FROM audit_entry e ORDER BY e.number DESC LIMIT 1));
END $$;

-- Appends an entry, under the lock, and forgets the oldest of a full log.
CREATE OR REPLACE FUNCTION append_deed(_now bigint, _deed jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _number bigint := coalesce((SELECT max(e.number) FROM audit_entry e), 0) + 1;
BEGIN
    INSERT INTO audit_entry VALUES (_number, _now, jsonb_strip_nulls(_deed));
    DELETE FROM audit_entry e WHERE e.number <= _number - {{AUDIT_ENTRIES}};
END $$;

-- A token in one form, whatever form it was sent in: scopes and queues in order, each once.
CREATE OR REPLACE FUNCTION token_spec(_new jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_strip_nulls(jsonb_build_object('id', _new->>'id', 'name', _new->>'name', 'hash', _new->>'hash',
        'scopes', (SELECT jsonb_agg(s ORDER BY array_position(ARRAY[{{SCOPES}}], s))
            FROM (SELECT DISTINCT e AS s FROM jsonb_array_elements_text(_new->'scopes') e) x),
        'queues', (SELECT jsonb_agg(q ORDER BY q COLLATE "C")
            FROM (SELECT DISTINCT e AS q FROM jsonb_array_elements_text(nullif(_new->'queues', 'null')) e) x),
        'app', _new->>'app', 'expires_at', (_new->>'expires_at')::bigint))
$$;

-- What a bearer may do, in words.
CREATE OR REPLACE FUNCTION rights(_spec jsonb) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT left((SELECT string_agg(e, ', ' ORDER BY i) FROM jsonb_array_elements_text(_spec->'scopes') WITH ORDINALITY x (e, i))
        || coalesce('; queues ' || (SELECT string_agg(e, ', ' ORDER BY i)
            FROM jsonb_array_elements_text(_spec->'queues') WITH ORDINALITY x (e, i)), '')
        || coalesce('; app ' || (_spec->>'app'), ''), {{AUDIT_BYTES}})
$$;

CREATE OR REPLACE FUNCTION api_create_token(_new jsonb, _by text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _now bigint; _spec jsonb; _known token;
BEGIN
    PERFORM check_token(_new);
    PERFORM check_none(audit_mistake('by', _by));
    _now := lock_audit_log();
    _spec := token_spec(_new);
    DELETE FROM token t WHERE t.expires_at <= _now;
    SELECT * INTO _known FROM token t WHERE t.token = _spec->>'id';
    IF FOUND THEN
        IF _known.spec <> _spec THEN
            PERFORM refuse('conflict', 'token ' || _known.token || ': another one has this id');
        END IF;
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM token t WHERE t.name = _spec->>'name') THEN
        PERFORM refuse('conflict', 'token ' || (_spec->>'name') || ': another one has this name');
    END IF;
    IF (_spec->>'expires_at')::bigint <= _now THEN
        PERFORM refuse('invalid', invalid('expires_at', _spec->>'expires_at', 'must be in the future'));
    ELSIF (SELECT count(*) FROM token) >= {{TOKENS}} THEN
        PERFORM refuse('invalid', invalid('name', _spec->>'name', 'must be one of at most {{TOKENS}} tokens of the namespace'));
    END IF;
    INSERT INTO token VALUES (_spec->>'id', _spec->>'name', (_spec->>'expires_at')::bigint, _now, _spec);
    PERFORM append_deed(_now, jsonb_build_object('by', _by, 'what', 'create token',
        'on', (_spec->>'name') || ' (' || (_spec->>'id') || ')', 'after', rights(_spec)));
END $$;

CREATE OR REPLACE FUNCTION api_revoke_token(_token text, _by text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE _now bigint; _gone token;
BEGIN
    PERFORM check_none(CASE WHEN NOT is_token(_token) THEN invalid('token', coalesce(_token, ''), token_rule()) END,
        audit_mistake('by', _by));
    _now := lock_audit_log();
    DELETE FROM token t WHERE t.token = _token AND coalesce(t.expires_at > _now, true) RETURNING * INTO _gone;
    IF NOT FOUND THEN PERFORM refuse('not_found', 'token ' || _token); END IF;
    PERFORM append_deed(_now, jsonb_build_object('by', _by, 'what', 'revoke token',
        'on', _gone.name || ' (' || _token || ')', 'before', rights(_gone.spec)));
END $$;

-- With the hashes: a server compares them. No role may call this but one that is let in by itself.
CREATE OR REPLACE FUNCTION api_tokens() RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE _now bigint := store_time();
BEGIN
    RETURN (SELECT coalesce(jsonb_agg(t.spec || jsonb_build_object('created_at', t.created_at) ORDER BY t.name), '[]')
        FROM token t WHERE coalesce(t.expires_at > _now, true));
END $$;

CREATE OR REPLACE FUNCTION api_record(_deed jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM check_deed(_deed);
    PERFORM append_deed(lock_audit_log(), jsonb_build_object('by', _deed->>'by', 'what', _deed->>'what', 'on', _deed->>'on',
        'before', _deed->>'before', 'after', _deed->>'after'));
END $$;

CREATE OR REPLACE FUNCTION api_audit(_before bigint, _limit integer) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM check_none(slots_mistake('limit', _limit, 1, {{PAGE}}));
    RETURN (SELECT coalesce(jsonb_agg(e.deed || jsonb_build_object('number', e.number, 'at', e.at) ORDER BY e.number DESC), '[]')
        FROM (SELECT * FROM audit_entry x WHERE x.number < coalesce(_before, 9223372036854775807) ORDER BY x.number DESC LIMIT _limit) e);
END $$;
