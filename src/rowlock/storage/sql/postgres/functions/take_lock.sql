-- Takes an idempotency lock, or returns why not. The row is locked while its state is judged, so that only one caller can
-- take it over.
CREATE OR REPLACE FUNCTION rowlock.take_lock(
    _company_id text, _job_key text, _scope_key text, _payload_hash text, _holder text,
    _stale_seconds double precision, _now timestamptz
) RETURNS TABLE (decision text, token bigint, holder text)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    clock timestamptz := coalesce(_now, clock_timestamp());
    held  rowlock.job_idempotency_locks;
    decided  text;
    first bigint := floor(extract(epoch FROM clock) * 1000); -- higher than the token of any removed lock
BEGIN
    LOOP
        INSERT INTO rowlock.job_idempotency_locks (company_id, job_key, scope_key, status, payload_hash, token, holder, locked_at)
        VALUES (_company_id, _job_key, _scope_key, 'running', _payload_hash, first, _holder, clock)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN QUERY SELECT 'proceed', first, NULL::text;
            RETURN;
        END IF;
        SELECT * INTO held FROM rowlock.job_idempotency_locks l
        WHERE l.company_id = _company_id AND l.job_key = _job_key AND l.scope_key = _scope_key FOR UPDATE;
        EXIT WHEN FOUND; -- otherwise it was removed meanwhile
    END LOOP;
    decided := CASE
        WHEN held.status = 'running' AND held.holder <> _holder
             AND held.locked_at > clock - _stale_seconds * interval '1 second' THEN 'already_running'
        WHEN held.status = 'running' THEN 'take_over'
        WHEN held.status = 'completed' AND held.payload_hash = _payload_hash THEN 'already_completed'
        WHEN held.status = 'completed' THEN 'rerun'
        ELSE 'retry' END;
    IF decided NOT LIKE 'already%' THEN
        UPDATE rowlock.job_idempotency_locks l
        SET status = 'running', payload_hash = _payload_hash, token = held.token + 1, holder = _holder,
            locked_at = clock, ended_at = NULL
        WHERE l.company_id = _company_id AND l.job_key = _job_key AND l.scope_key = _scope_key;
        RETURN QUERY SELECT decided, held.token + 1, held.holder;
    ELSE
        RETURN QUERY SELECT decided, held.token, held.holder;
    END IF;
END $$;
