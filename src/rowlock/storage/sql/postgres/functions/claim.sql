-- Claims up to _limit available jobs of a queue. The scan starts after (_after_priority, _after_seq), so that a worker
-- does not step over its own dead rows while an old transaction keeps vacuum from removing them. If there are more limit
-- keys than one claim looks at, a last row without an id names the key after which the next claim continues.
CREATE OR REPLACE FUNCTION rowlock.claim(
    _queue text, _owner uuid, _limit integer, _after_priority integer, _after_seq bigint, _after_key text, _now timestamptz
) RETURNS TABLE (id text, lease integer, attempt smallint, max_attempts smallint, deaths smallint, priority smallint,
                 type text, payload text, company_id text, limit_key text, trace text, seq bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    clock     timestamptz := coalesce(_now, clock_timestamp());
    moved     integer;
    seen      record;
    keys      text[] := '{}';               -- keys with room, locked
    looked_at integer := 0;
    last_key  text;
    more      boolean := false;             -- some keys were not looked at
BEGIN
    IF EXISTS (SELECT FROM rowlock.queues q WHERE q.name = _queue AND q.paused_at IS NOT NULL) THEN
        RETURN;
    END IF;

    WITH due AS (
        DELETE FROM rowlock.delayed
        WHERE ctid = ANY (ARRAY(
            SELECT d.ctid FROM rowlock.delayed d WHERE d.queue = _queue AND d.available_at <= clock
            ORDER BY d.available_at LIMIT 1000 FOR UPDATE SKIP LOCKED))
        RETURNING seq, job_id, lease, priority, attempt, deaths, queue, limit_key, available_at, updated_at, error
    )
    INSERT INTO rowlock.ready (seq, job_id, lease, priority, attempt, deaths, queue, limit_key, available_at, updated_at, error)
    SELECT seq, job_id, lease, priority, attempt, deaths, queue, limit_key, available_at, updated_at, error FROM due;
    GET DIAGNOSTICS moved = ROW_COUNT;
    IF moved > 0 THEN
        INSERT INTO rowlock.counter_deltas (at, queue, type, delayed) VALUES (clock, _queue, '', -moved);
    END IF;

    IF NOT EXISTS (SELECT FROM rowlock.ready r WHERE r.queue = _queue AND r.limit_key IS NOT NULL) THEN
        RETURN QUERY
        WITH picked AS (
            DELETE FROM rowlock.ready
            WHERE ctid = ANY (ARRAY(
                SELECT r.ctid FROM rowlock.ready r
                WHERE r.queue = _queue AND r.limit_key IS NULL AND (r.priority, r.seq) > (_after_priority, _after_seq)
                  -- Checked again with the rows: a job that was enqueued after a pause must not slip through.
                  AND NOT EXISTS (SELECT FROM rowlock.queues q WHERE q.name = _queue AND q.paused_at IS NOT NULL)
                ORDER BY r.priority, r.seq LIMIT _limit FOR UPDATE SKIP LOCKED))
            RETURNING job_id, lease + 1 AS lease, (attempt + 1)::smallint AS attempt, deaths, available_at
        ), claimed AS (
            -- Jobs in their first attempt, by far the most, are looked up together, without a join.
            SELECT j.id, 1 AS lease, 1::smallint AS attempt, j.max_attempts, 0::smallint AS deaths, j.priority, j.type, j.payload,
                   j.company_id, j.trace, j.seq, j.visibility_ms, j.releases_key, NULL::timestamptz AS available_at
            FROM rowlock.jobs j WHERE j.id = ANY (ARRAY(
                SELECT job_id FROM picked WHERE lease = 1 AND attempt = 1 AND deaths = 0 AND available_at IS NULL))
            UNION ALL
            SELECT j.id, p.lease, p.attempt, j.max_attempts, p.deaths, j.priority, j.type, j.payload,
                   j.company_id, j.trace, j.seq, j.visibility_ms, j.releases_key, p.available_at
            FROM picked p CROSS JOIN LATERAL (SELECT * FROM rowlock.jobs x WHERE x.id = p.job_id OFFSET 0) j
            WHERE p.lease > 1 OR p.attempt > 1 OR p.deaths > 0 OR p.available_at IS NOT NULL
        ), started AS (
            INSERT INTO rowlock.running (job_id, owner, locked_at, lease, visibility_ms, attempt, deaths, releases_key, available_at)
            SELECT id, _owner, clock, lease, visibility_ms, attempt, deaths, releases_key, available_at FROM claimed
        )
        SELECT c.id::text, c.lease, c.attempt, c.max_attempts, c.deaths, c.priority, c.type, c.payload::text, c.company_id,
               NULL::text, c.trace, c.seq
        FROM claimed c ORDER BY c.priority, c.seq;
        RETURN;
    END IF;

    -- Some jobs have a limit key. Go from key to key, starting where the caller stopped, and collect keys with room. Their
    -- locks are held until this claim commits: the next claim that counts starts counts ours.
    <<round>>
    FOR lap IN 0..1 LOOP
        FOR seen IN
            WITH RECURSIVE walk AS (
                (SELECT r.limit_key AS key FROM rowlock.ready r
                 WHERE r.queue = _queue AND r.limit_key > CASE lap WHEN 0 THEN _after_key ELSE '' END
                 ORDER BY r.limit_key LIMIT 1)
                UNION ALL
                SELECT (SELECT r.limit_key FROM rowlock.ready r
                        WHERE r.queue = _queue AND r.limit_key > w.key ORDER BY r.limit_key LIMIT 1)
                FROM walk w WHERE w.key IS NOT NULL
            )
            SELECT w.key, l.concurrency, l.rate, clock - l.per_seconds * interval '1 second' AS since,
                   EXISTS (SELECT FROM rowlock.key_pauses p
                           WHERE p.key IN (w.key, split_part(w.key, ':', 1)) AND p.until > clock) AS paused
            FROM walk w
            LEFT JOIN LATERAL (SELECT * FROM rowlock.limits x WHERE x.name = split_part(w.key, ':', 1) OFFSET 0) l ON true
            WHERE w.key IS NOT NULL
        LOOP
            EXIT round WHEN lap = 1 AND seen.key > _after_key;
            IF looked_at = 1024 OR cardinality(keys) = 256 THEN
                more := true;
                EXIT round;
            END IF;
            looked_at := looked_at + 1;
            last_key := seen.key;
            CONTINUE WHEN seen.paused;
            CONTINUE WHEN seen.concurrency IS NOT NULL AND seen.concurrency <= (
                SELECT count(*) FROM rowlock.running x WHERE x.limit_key = seen.key);
            CONTINUE WHEN seen.rate IS NOT NULL AND seen.rate <= (
                SELECT count(*) FROM rowlock.key_starts s WHERE s.key = seen.key AND s.started_at > seen.since);
            IF pg_try_advisory_xact_lock(hashtextextended('rowlock:' || seen.key, 0)) THEN
                keys := keys || seen.key;
            END IF;
        END LOOP;
    END LOOP;

    -- A new snapshot, taken after the locks: the counts below are exact.
    RETURN QUERY
    WITH open AS (
        SELECT k.key, l.rate IS NOT NULL AS rated,
               least(_limit,
                     l.concurrency - (SELECT count(*) FROM rowlock.running x WHERE x.limit_key = k.key),
                     l.rate - (SELECT count(*) FROM rowlock.key_starts s
                               WHERE s.key = k.key AND s.started_at > clock - l.per_seconds * interval '1 second')) AS free
        FROM unnest(keys) AS k (key) LEFT JOIN rowlock.limits l ON l.name = split_part(k.key, ':', 1)
    ), keyed AS (
        SELECT y.ctid AS place, y.job_id, y.lease, y.priority, y.seq, y.limit_key, o.rated
        FROM open o
        CROSS JOIN LATERAL (
            SELECT r.ctid, r.job_id, r.lease, r.priority, r.seq, r.limit_key FROM rowlock.ready r
            WHERE r.queue = _queue AND r.limit_key = o.key ORDER BY r.priority, r.seq LIMIT greatest(o.free, 0)
            FOR UPDATE SKIP LOCKED) y
    ), unkeyed AS (
        SELECT r.ctid AS place, r.job_id, r.lease, r.priority, r.seq, NULL::text AS limit_key, false AS rated
        FROM rowlock.ready r
        WHERE r.queue = _queue AND r.limit_key IS NULL
        ORDER BY r.priority, r.seq LIMIT _limit FOR UPDATE SKIP LOCKED
    ), best AS MATERIALIZED (
        SELECT * FROM (SELECT * FROM keyed UNION ALL SELECT * FROM unkeyed) e
        WHERE NOT EXISTS (SELECT FROM rowlock.queues q WHERE q.name = _queue AND q.paused_at IS NOT NULL)
        ORDER BY priority, seq LIMIT _limit
    ), counted AS (
        INSERT INTO rowlock.key_starts (key, started_at, job_id, lease)
        SELECT limit_key, clock, job_id, lease + 1 FROM best WHERE rated
    ), forgotten AS (
        DELETE FROM rowlock.key_starts s USING rowlock.limits l, unnest(keys) AS k (key)
        WHERE l.name = split_part(k.key, ':', 1) AND s.key = k.key
          AND s.started_at <= clock - l.per_seconds * interval '1 second'
    ), picked AS (
        DELETE FROM rowlock.ready WHERE ctid = ANY (ARRAY(SELECT place FROM best))
        RETURNING job_id, lease + 1 AS lease, (attempt + 1)::smallint AS attempt, deaths, available_at
    ), claimed AS (
        SELECT j.id, p.lease, p.attempt, j.max_attempts, p.deaths, j.priority, j.type, j.payload, j.company_id,
               j.limit_key, j.trace, j.seq, j.visibility_ms, j.releases_key, p.available_at
        FROM picked p CROSS JOIN LATERAL (SELECT * FROM rowlock.jobs x WHERE x.id = p.job_id OFFSET 0) j
    ), started AS (
        INSERT INTO rowlock.running (job_id, owner, locked_at, lease, visibility_ms, attempt, deaths, releases_key, limit_key,
                                     available_at)
        SELECT id, _owner, clock, lease, visibility_ms, attempt, deaths, releases_key, limit_key, available_at FROM claimed
    )
    SELECT c.id::text, c.lease, c.attempt, c.max_attempts, c.deaths, c.priority, c.type, c.payload::text, c.company_id,
           c.limit_key, c.trace, c.seq
    FROM claimed c ORDER BY c.priority, c.seq;
    IF more THEN
        RETURN QUERY SELECT NULL::text, NULL::integer, NULL::smallint, NULL::smallint, NULL::smallint, NULL::smallint,
                            NULL::text, NULL::text, NULL::text, last_key, NULL::text, NULL::bigint;
    END IF;
END $$;
