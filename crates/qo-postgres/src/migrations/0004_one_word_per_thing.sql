-- One word for each thing, the same in SQL as in the rule book and in docs/glossary.md.

-- A function cannot be replaced by one whose parameters or columns have other names. `99_doors.sql` opens the doors
-- among them to the same roles again.
DO $$
DECLARE _function regprocedure;
BEGIN
    FOR _function IN SELECT p.oid FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace AND p.proname = ANY (ARRAY[
        -- Renamed.
        'alone', 'call_in', 'claim_along_lanes', 'heads_of_lanes', 'is_its_turn', 'is_own_group', 'lane_of', 'lanes_of', 'let_in',
        'let_others_in', 'limit_in_force', 'limited_sums_of_lanes', 'needs_some', 'other_at', 'other_that_runs', 'own_ref',
        'parked_lanes', 'put_aside', 'rank_of', 'ring', 'set_gate', 'something', 'stand_back', 'take_turns', 'tell', 'turn_at', 'turn_key',
        -- With other parameters or columns.
        'all_used', 'api_exchange_shared', 'api_fail_unreadable', 'check_shared_exchange', 'claim_shared', 'claim_unlimited',
        'end_of', 'end_what_is_over', 'finish', 'goes_back', 'group_status', 'head_of_line', 'holders', 'job_view', 'known_refs',
        'limit_with', 'live_in', 'live_view', 'position_of', 'reasons', 'running_view', 'shown_state', 'walk', 'worker_view',
        -- Gone.
        'explain_view', 'foresee', 'group_view', 'groups_view', 'is_anything_over', 'next_changeable', 'queues_view', 'view_of',
        'workers_view'])
    LOOP
        EXECUTE format('DROP FUNCTION %s', _function);
    END LOOP;
END $$;

ALTER TABLE hold RENAME TO owned_job;
ALTER TABLE owned_job RENAME CONSTRAINT hold_pkey TO owned_job_pkey;
ALTER TABLE owned_job RENAME CONSTRAINT hold_state_check TO owned_job_state_check;
ALTER INDEX hold_session RENAME TO owned_job_session;
ALTER INDEX hold_until RENAME TO owned_job_until;

ALTER TABLE gate RENAME TO effective_limit;
ALTER TABLE effective_limit RENAME CONSTRAINT gate_pkey TO effective_limit_pkey;
ALTER INDEX gate_large RENAME TO effective_limit_large;
ALTER INDEX gate_keys RENAME TO effective_limit_keys;
ALTER INDEX gate_closed RENAME TO effective_limit_zero;

ALTER TABLE extra RENAME TO extra_limit;
ALTER TABLE extra_limit RENAME CONSTRAINT extra_pkey TO extra_limit_pkey;
ALTER INDEX extra_job RENAME TO extra_limit_job;

ALTER TABLE admission RENAME TO submit_lock;
ALTER TABLE submit_lock RENAME CONSTRAINT admission_pkey TO submit_lock_pkey;

ALTER TABLE line RENAME COLUMN lane TO class;
ALTER TABLE line RENAME COLUMN twin TO extra_keys;
ALTER INDEX line_lane RENAME TO line_class;

-- As in `push`, `code_limit` and `submit_limit`: the greatest `n` is the newest.
ALTER TABLE app RENAME COLUMN place TO n;

-- A registration calls the limit of its task `max_concurrent`.
UPDATE task SET options = (options - 'limit') || jsonb_build_object('max_concurrent', options->'limit') WHERE options ? 'limit';
UPDATE registration SET options = (options - 'limit') || jsonb_build_object('max_concurrent', options->'limit') WHERE options ? 'limit';
