-- Cancels a waiting job, or asks the owner of a running one to stop.
CREATE OR REPLACE FUNCTION rowlock.cancel(_id uuid, _now timestamptz) RETURNS text
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    clock  timestamptz := coalesce(_now, clock_timestamp());
    job    rowlock.jobs;
    spent  record;
    later  integer;
BEGIN
    SELECT * INTO job FROM rowlock.jobs j WHERE j.id = _id;
    IF NOT FOUND THEN
        RETURN 'not_found';
    END IF;
    -- The job may move between tables meanwhile: try each of them a few times.
    FOR round IN 1..5 LOOP
        spent := NULL;
        later := 0;
        IF job.limit_key IS NULL THEN
            DELETE FROM rowlock.ready r
            WHERE r.queue = job.queue AND r.priority = job.priority AND r.seq = job.seq AND r.limit_key IS NULL
            RETURNING r.lease, r.attempt, r.deaths, r.available_at INTO spent;
        ELSE
            DELETE FROM rowlock.ready r
            WHERE r.queue = job.queue AND r.priority = job.priority AND r.seq = job.seq AND r.limit_key = job.limit_key
            RETURNING r.lease, r.attempt, r.deaths, r.available_at INTO spent;
        END IF;
        IF NOT FOUND THEN
            DELETE FROM rowlock.delayed d WHERE d.job_id = _id
            RETURNING d.lease, d.attempt, d.deaths, d.available_at INTO spent;
            later := CASE WHEN FOUND THEN -1 ELSE 0 END;
        END IF;
        IF FOUND THEN
            INSERT INTO rowlock.finished (job_id, available_at, started_at, finished_at, lease, attempt, deaths, status, error)
            VALUES (_id, spent.available_at, NULL, clock, spent.lease, spent.attempt, spent.deaths, 3, 'cancelled before it started');
            INSERT INTO rowlock.counter_deltas (at, queue, type, alive, delayed, cancelled)
            VALUES (clock, job.queue, job.type, -1, later, 1);
            IF job.releases_key THEN
                DELETE FROM rowlock.unique_keys k WHERE k.key = job.unique_key AND k.job_id = _id;
            END IF;
            RETURN 'cancelled';
        END IF;
        UPDATE rowlock.running r
        SET updated_at = CASE WHEN r.cancel_requested THEN r.updated_at ELSE clock END, cancel_requested = true
        WHERE r.job_id = _id;
        IF FOUND THEN
            PERFORM pg_notify('rowlock', 'cancel:' || _id);
            RETURN 'requested';
        END IF;
        IF EXISTS (SELECT FROM rowlock.finished f WHERE f.job_id = _id) THEN
            RETURN 'already_final';
        END IF;
    END LOOP;
    RETURN 'not_found';
END $$;
