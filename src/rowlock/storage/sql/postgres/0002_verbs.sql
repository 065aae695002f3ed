-- The busy verbs as functions: one round trip each, planned once, the same behind any pooler, driver or language.
-- The tables are empty one minute and huge the next, so statistics always lag behind: joins are written as lateral
-- look-ups by key (OFFSET 0 keeps them so), which no plan can turn around.

-- Records jobs, in order. A column of equal values may be sent as an array of one, one of nulls as an empty array.
-- Returns one row per job that was not created, with the job that holds its unique key, and whether retention has
-- removed that job. Where _newest_wins says so for a job that is not created, the holder takes over its payload and its id.
CREATE FUNCTION rowlock.enqueue_many(
    _ids uuid[], _types text[], _payloads text[], _queues text[], _priorities integer[], _max_attempts integer[],
    _visibility_ms integer[], _delays double precision[], _available_at timestamptz[],
    _company_ids text[], _limit_keys text[], _traces text[],
    _unique_keys text[], _unique_seconds double precision[], _while_active boolean[],
    _newest_wins boolean[], _notify boolean, _now timestamptz
) RETURNS TABLE (ordinal bigint, existing text, removed boolean)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET work_mem = '64MB'
AS $$
#variable_conflict use_column
DECLARE
    clock   timestamptz := coalesce(_now, clock_timestamp());
    refused bigint[] := '{}';
    all_new boolean;
    holders uuid[];
    block   bigint[] := ARRAY(SELECT (nextval('rowlock.job_seq') - n) * 4096 FROM generate_series(0, cardinality(_ids) / 4096) n);
BEGIN
    -- Again, a few times, when a key was freed between being refused and being looked up.
    FOR round IN 1..5 LOOP
        EXIT WHEN cardinality(_unique_keys) = 0;
        -- Sorted, so that two producers with overlapping keys wait for each other in one direction only.
        WITH wanted AS (
            SELECT u.ordinal, u.id, u.key, coalesce(clock + u.seconds * interval '1 second', 'infinity') AS expires_at
            FROM unnest(_ids, _unique_keys, _unique_seconds) WITH ORDINALITY AS u (id, key, seconds, ordinal)
            WHERE u.key IS NOT NULL
        ), first AS (
            SELECT DISTINCT ON (key) * FROM wanted ORDER BY key, ordinal
        ), taken AS (
            INSERT INTO rowlock.unique_keys AS k (key, job_id, expires_at)
            SELECT key, id, expires_at FROM first ORDER BY key
            ON CONFLICT (key) DO UPDATE SET job_id = excluded.job_id, expires_at = excluded.expires_at
            WHERE k.expires_at <= clock OR k.job_id = excluded.job_id
            RETURNING k.job_id
        )
        SELECT coalesce(array_agg(w.ordinal ORDER BY w.ordinal), '{}') INTO refused
        FROM wanted w WHERE w.id NOT IN (SELECT job_id FROM taken);
        -- A new snapshot: the holder may have committed after the statement above began.
        SELECT array_agg(k.job_id ORDER BY r.ordinal) INTO holders
        FROM unnest(refused) AS r (ordinal) LEFT JOIN rowlock.unique_keys k ON k.key = _unique_keys[r.ordinal];
        EXIT WHEN array_position(holders, NULL) IS NULL;
    END LOOP;
    all_new := refused = '{}';

    -- Most calls bring one job, or many that differ in their payloads only: half the work of the general case.
    IF cardinality(_unique_keys) = 0 AND cardinality(_available_at) = 0 AND NOT 0 < ANY (_delays)
       AND greatest(cardinality(_types), cardinality(_queues), cardinality(_priorities), cardinality(_max_attempts),
                    cardinality(_visibility_ms), cardinality(_company_ids), cardinality(_limit_keys), cardinality(_traces)) <= 1 THEN
        WITH made AS (
            INSERT INTO rowlock.jobs (id, seq, created_at, visibility_ms, priority, max_attempts, releases_key,
                                      queue, type, payload, company_id, limit_key, trace)
            SELECT u.id, block[u.ordinal / 4096 + 1] + u.ordinal, clock, _visibility_ms[1], _priorities[1], _max_attempts[1],
                   false, _queues[1], _types[1], u.payload, _company_ids[1], _limit_keys[1], _traces[1]
            FROM unnest(_ids, _payloads) WITH ORDINALITY AS u (id, payload, ordinal)
            RETURNING id, seq
        )
        INSERT INTO rowlock.ready (seq, job_id, lease, priority, attempt, deaths, queue, limit_key)
        SELECT seq, id, 0, _priorities[1], 0, 0, _queues[1], _limit_keys[1] FROM made;
        INSERT INTO rowlock.tallies (at, queue, type, alive) VALUES (clock, _queues[1], _types[1], cardinality(_ids));
    ELSE
        INSERT INTO rowlock.jobs (id, seq, created_at, visibility_ms, priority, max_attempts, releases_key,
                                  queue, type, payload, company_id, limit_key, unique_key, trace)
        SELECT u.id, block[u.ordinal / 4096 + 1] + u.ordinal, clock, coalesce(u.visibility_ms, _visibility_ms[1]),
               coalesce(u.priority, _priorities[1]), coalesce(u.max_attempts, _max_attempts[1]), coalesce(u.while_active, false),
               coalesce(u.queue, _queues[1]), coalesce(u.type, _types[1]), u.payload, u.company_id, u.limit_key,
               u.unique_key, u.trace
        FROM unnest(_ids, _types, _payloads, _queues, _priorities, _max_attempts, _visibility_ms,
                    _company_ids, _limit_keys, _traces, _unique_keys, _while_active) WITH ORDINALITY
             AS u (id, type, payload, queue, priority, max_attempts, visibility_ms,
                   company_id, limit_key, trace, unique_key, while_active, ordinal)
        WHERE all_new OR u.ordinal <> ALL (refused);

        INSERT INTO rowlock.ready (seq, job_id, lease, priority, attempt, deaths, queue, limit_key)
        SELECT block[u.ordinal / 4096 + 1] + u.ordinal, u.id, 0, coalesce(u.priority, _priorities[1]), 0, 0,
               coalesce(u.queue, _queues[1]), u.limit_key
        FROM unnest(_ids, _queues, _priorities, _delays, _available_at, _limit_keys) WITH ORDINALITY
             AS u (id, queue, priority, delay, available_at, limit_key, ordinal)
        WHERE NOT coalesce(u.available_at > clock, u.delay > 0, _delays[1] > 0, false)
          AND (all_new OR u.ordinal <> ALL (refused));

        IF cardinality(_available_at) > 0 OR 0 < ANY (_delays) THEN
            INSERT INTO rowlock.delayed (job_id, seq, available_at, lease, priority, attempt, deaths, queue, limit_key)
            SELECT u.id, block[u.ordinal / 4096 + 1] + u.ordinal,
                   coalesce(u.available_at, clock + coalesce(u.delay, _delays[1]) * interval '1 second'),
                   0, coalesce(u.priority, _priorities[1]), 0, 0, coalesce(u.queue, _queues[1]), u.limit_key
            FROM unnest(_ids, _queues, _priorities, _delays, _available_at, _limit_keys) WITH ORDINALITY
                 AS u (id, queue, priority, delay, available_at, limit_key, ordinal)
            WHERE coalesce(u.available_at > clock, u.delay > 0, _delays[1] > 0, false)
              AND (all_new OR u.ordinal <> ALL (refused));
        END IF;

        INSERT INTO rowlock.tallies (at, queue, type, alive, delayed)
        SELECT clock, coalesce(u.queue, _queues[1]), coalesce(u.type, _types[1]), count(*),
               count(*) FILTER (WHERE coalesce(u.available_at > clock, u.delay > 0, _delays[1] > 0, false))
        FROM unnest(_ids, _types, _queues, _delays, _available_at) WITH ORDINALITY
             AS u (id, type, queue, delay, available_at, ordinal)
        WHERE all_new OR u.ordinal <> ALL (refused)
        GROUP BY 2, 3;
    END IF;

    IF cardinality(_newest_wins) > 0 AND NOT all_new THEN
        -- The look at the keys has locked those that are taken: their jobs cannot end, nor free them, before this commits.
        UPDATE rowlock.jobs j SET newest = n.id, payload = n.payload
        FROM (SELECT DISTINCT ON (r.holder) r.holder, _ids[r.ordinal] AS id, _payloads[r.ordinal] AS payload
              FROM unnest(refused, holders) AS r (ordinal, holder) WHERE _newest_wins[r.ordinal]
              ORDER BY r.holder, _ids[r.ordinal] DESC) n
        WHERE j.id = n.holder AND j.releases_key AND coalesce(j.newest, j.id) < n.id;
    END IF;

    IF _notify THEN
        PERFORM pg_notify('rowlock', 'queue:' || q.queue) FROM (SELECT DISTINCT unnest(_queues) AS queue) q;
    END IF;
    RETURN QUERY SELECT r.ordinal, r.holder::text, NOT EXISTS (SELECT FROM rowlock.jobs j WHERE j.id = r.holder)
    FROM unnest(refused, holders) AS r (ordinal, holder);
END $$;

-- One job from plain SQL, a trigger or any other language; returns its id. The payload limit is that of the application.
-- With a unique key that is taken, returns the id of the job that holds it.
CREATE FUNCTION rowlock.enqueue(
    type text, payload json DEFAULT '{}', queue text DEFAULT 'default', priority integer DEFAULT 100,
    delay_seconds double precision DEFAULT 0, available_at timestamptz DEFAULT NULL, max_attempts integer DEFAULT 5,
    visibility_ms integer DEFAULT 30000, company_id text DEFAULT NULL, limit_key text DEFAULT NULL,
    unique_key text DEFAULT NULL, unique_seconds double precision DEFAULT NULL, while_active boolean DEFAULT false
) RETURNS uuid
LANGUAGE plpgsql
AS $$
DECLARE
    stamp    text := lpad(to_hex(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0');
    noise    text := replace(gen_random_uuid()::text, '-', '');
    new_id   uuid := (stamp || '7' || substr(noise, 14, 3) || substr(noise, 17))::uuid;
    existing text;
BEGIN
    IF json_typeof(payload) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'rowlock: the payload of a job must be a JSON object, not %', coalesce(json_typeof(payload), 'null');
    END IF;
    IF octet_length(payload::text) > 1048576 THEN
        RAISE EXCEPTION 'rowlock: the payload is % bytes, more than 1048576; store the data elsewhere and pass a reference',
            octet_length(payload::text);
    END IF;
    SELECT e.existing INTO existing FROM rowlock.enqueue_many(
        ARRAY[new_id], ARRAY[type], ARRAY[payload::text], ARRAY[queue], ARRAY[priority], ARRAY[max_attempts],
        ARRAY[visibility_ms], ARRAY[delay_seconds], CASE WHEN available_at IS NULL THEN '{}'::timestamptz[] ELSE ARRAY[available_at] END,
        ARRAY[company_id], ARRAY[limit_key], ARRAY[NULL::text],
        CASE WHEN unique_key IS NULL THEN '{}'::text[] ELSE ARRAY[concat_ws(chr(31), company_id, unique_key)] END,
        ARRAY[unique_seconds], ARRAY[while_active AND unique_key IS NOT NULL], '{}', true, NULL) e;
    RETURN coalesce(existing::uuid, new_id);
END $$;

-- Frees the keys of jobs that hold them while they are active, unless they took over from a newer job than the one given
-- for each. Returns those that did. Fails if a key stays locked: the caller tries again and keeps no connection meanwhile.
CREATE FUNCTION rowlock.free_keys(_ids uuid[], _newest uuid[]) RETURNS text[]
LANGUAGE plpgsql
SET lock_timeout = '300ms'
AS $$
BEGIN
    -- Who is answered with such a job holds its key's lock until the commit: wait for them, and then look.
    PERFORM FROM rowlock.unique_keys k
    WHERE k.job_id = ANY (_ids)
      AND k.key = ANY (ARRAY(SELECT j.unique_key FROM rowlock.jobs j WHERE j.id = ANY (_ids) AND j.releases_key))
    ORDER BY k.key FOR UPDATE;
    DELETE FROM rowlock.unique_keys k USING rowlock.jobs j, unnest(_ids, _newest) AS u (id, newest)
    WHERE j.id = u.id AND j.releases_key AND coalesce(j.newest, j.id) <= u.newest
      AND k.key = j.unique_key AND k.job_id = j.id;
    RETURN ARRAY(SELECT j.id::text FROM unnest(_ids, _newest) AS u (id, newest)
                 JOIN rowlock.jobs j ON j.id = u.id WHERE j.newest > u.newest);
END $$;

-- Takes up to _limit available jobs of a queue. The scan starts after (_after_priority, _after_seq), so that a worker
-- need not step over its own dead rows while an old transaction keeps vacuum from removing them. Where there are more
-- limit keys than one claim looks at, a last row without an id names the key after which the next claim goes on.
CREATE FUNCTION rowlock.claim(
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
    keys      text[] := '{}';               -- those with room, locked
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
        INSERT INTO rowlock.tallies (at, queue, type, delayed) VALUES (clock, _queue, '', -moved);
    END IF;

    IF NOT EXISTS (SELECT FROM rowlock.ready r WHERE r.queue = _queue AND r.limit_key IS NOT NULL) THEN
        RETURN QUERY
        WITH picked AS (
            DELETE FROM rowlock.ready
            WHERE ctid = ANY (ARRAY(
                SELECT r.ctid FROM rowlock.ready r
                WHERE r.queue = _queue AND r.limit_key IS NULL AND (r.priority, r.seq) > (_after_priority, _after_seq)
                  -- Again, with these very rows: what was enqueued after a pause must not slip through it.
                  AND NOT EXISTS (SELECT FROM rowlock.queues q WHERE q.name = _queue AND q.paused_at IS NOT NULL)
                ORDER BY r.priority, r.seq LIMIT _limit FOR UPDATE SKIP LOCKED))
            RETURNING job_id, lease + 1 AS lease, (attempt + 1)::smallint AS attempt, deaths, available_at
        ), claimed AS (
            -- Jobs that never waited again, by far the most, are looked up together: no join, and no way down the index for
            -- each.
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

    -- Some jobs here have a limit key. Go from key to key, round from where the caller left off, and collect keys with
    -- room. Each one's lock is held until this claim commits: the next claim that counts its starts counts ours.
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

-- Ends attempts, each only where its id, lease and owner still match. Returns the ids for which they did not.
-- Outcomes: 1 succeeded, 2 failed, 3 cancelled; 4 retry, 5 release, 6 crash, 7 suspect wait again; 8 fatal is a failure.
-- A column of equal leases is sent as an array of one. Empty arrays stand for columns of defaults: every outcome a
-- success, no delay, no result, no error. Types and queues are for the counts alone. _failures: an array of objects with
-- id, job, lease, payload (redacted, as text) and stack, one for each attempt that failed.
CREATE FUNCTION rowlock.settle(
    _owner uuid, _ids uuid[], _leases integer[], _outcomes integer[], _seconds double precision[],
    _delays double precision[], _results text[], _errors text[], _types text[], _queues text[], _failures json, _now timestamptz
) RETURNS text[]
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_nestloop = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    clock   timestamptz := coalesce(_now, clock_timestamp());
    settled uuid[];
BEGIN
    WITH told AS MATERIALIZED (
        SELECT u.id, coalesce(u.lease, _leases[1]) AS lease, coalesce(u.outcome, 1) AS outcome, coalesce(u.seconds, 0) AS seconds,
               coalesce(u.delay, 0) AS delay, u.result, u.error,
               coalesce(u.type, _types[1]) AS type, coalesce(u.queue, _queues[1]) AS queue
        FROM unnest(_ids, _leases, _outcomes, _seconds, _delays, _results, _errors, _types, _queues)
             AS u (id, lease, outcome, seconds, delay, result, error, type, queue)
    ), gone AS (
        -- The guard is a hashed list, not a join, which could be planned the wrong way round (IS TRUE keeps it so).
        DELETE FROM rowlock.running r
        WHERE r.job_id = ANY (_ids) AND r.owner = _owner
          AND ((r.job_id, r.lease) IN (SELECT t.id, t.lease FROM told t)) IS TRUE
        RETURNING r.job_id, r.lease, r.attempt, r.deaths, r.releases_key, r.cancel_requested
    ), found AS MATERIALIZED (
        SELECT g.job_id, g.lease, g.releases_key,
               g.attempt - (t.outcome IN (5, 7))::integer AS attempt,
               g.deaths + (t.outcome IN (6, 7, 8))::integer AS deaths,
               -- What was to be cancelled does not run again.
               CASE WHEN t.outcome = 8 THEN 2 WHEN g.cancel_requested AND t.outcome > 3 THEN 3 ELSE t.outcome END AS outcome,
               t.seconds, t.delay, t.result, t.error, t.type, t.queue, t.outcome AS said
        FROM gone g JOIN told t ON t.id = g.job_id AND t.lease = g.lease
    ), over AS (
        INSERT INTO rowlock.finished (job_id, started_at, finished_at, lease, attempt, deaths, status, result, error)
        SELECT job_id, clock - seconds * interval '1 second', clock, lease, attempt, deaths, outcome, result::json, error
        FROM found WHERE outcome <= 3
    ), freed AS (
        DELETE FROM rowlock.unique_keys k
        WHERE k.job_id = ANY (ARRAY(SELECT job_id FROM found WHERE releases_key AND outcome <= 3))
          AND k.key = ANY (ARRAY(
              SELECT j.unique_key FROM found f
              CROSS JOIN LATERAL (SELECT x.unique_key FROM rowlock.jobs x WHERE x.id = f.job_id OFFSET 0) j
              WHERE f.releases_key AND f.outcome <= 3))
    ), again AS (
        SELECT j.seq, f.job_id, f.lease, j.priority, f.attempt, f.deaths, j.queue, j.limit_key, f.error, f.delay
        FROM found f CROSS JOIN LATERAL (SELECT * FROM rowlock.jobs x WHERE x.id = f.job_id OFFSET 0) j
        WHERE f.outcome > 3
    ), soon AS (
        INSERT INTO rowlock.ready (seq, job_id, lease, priority, attempt, deaths, queue, limit_key, available_at, updated_at, error)
        SELECT seq, job_id, lease, priority, attempt, deaths, queue, limit_key, clock, clock, error FROM again WHERE delay <= 0
    ), later AS (
        INSERT INTO rowlock.delayed (job_id, seq, available_at, lease, priority, attempt, deaths, queue, limit_key, updated_at, error)
        SELECT job_id, seq, clock + delay * interval '1 second', lease, priority, attempt, deaths, queue, limit_key, clock, error
        FROM again WHERE delay > 0
    ), recorded AS (
        INSERT INTO rowlock.job_failures (id, job_id, job_name, queue_name, company_id, payload, attempts, max_attempts,
                                          is_final_attempt, failed_reason, stack_trace, first_failed_at)
        SELECT x.id, f.job_id, j.type, j.queue, j.company_id, x.payload::json, f.attempt, j.max_attempts,
               f.outcome = 2, coalesce(f.error, ''), x.stack, clock
        FROM json_to_recordset(_failures) AS x (id uuid, job uuid, lease integer, payload text, stack text)
        JOIN found f ON f.job_id = x.job AND f.lease = x.lease
        CROSS JOIN LATERAL (SELECT * FROM rowlock.jobs y WHERE y.id = f.job_id OFFSET 0) j
    ), tallied AS (
        INSERT INTO rowlock.tallies (at, queue, type, alive, delayed, succeeded, failed, cancelled, failures, retries, seconds)
        SELECT clock, queue, type, -count(*) FILTER (WHERE outcome <= 3), count(*) FILTER (WHERE outcome > 3 AND delay > 0),
               count(*) FILTER (WHERE outcome = 1), count(*) FILTER (WHERE outcome = 2), count(*) FILTER (WHERE outcome = 3),
               count(*) FILTER (WHERE said IN (2, 4, 6, 8)), count(*) FILTER (WHERE outcome = 4),
               -- The time of an attempt that was given back is nobody's: no end that is counted has it.
               coalesce(sum(seconds) FILTER (WHERE outcome NOT IN (5, 7)), 0)
        FROM found WHERE outcome NOT IN (5, 7) OR delay > 0 GROUP BY queue, type
    )
    SELECT array_agg(job_id) INTO settled FROM found;

    IF coalesce(cardinality(settled), 0) = cardinality(_ids) THEN
        RETURN '{}';
    END IF;
    RETURN ARRAY(SELECT i::text FROM unnest(_ids) AS u (i) WHERE i <> ALL (coalesce(settled, '{}')));
END $$;

-- Takes back jobs whose lease has run out: the owner was not seen, and the claim is older, than the visibility timeout.
CREATE FUNCTION rowlock.rescue(_limit integer, _queues text[], _delays double precision[], _now timestamptz)
RETURNS TABLE (id text, type text, queue text, owner text, attempt smallint, max_attempts smallint, outcome integer,
               company_id text, payload text, error text)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    clock timestamptz := coalesce(_now, clock_timestamp());
BEGIN
    RETURN QUERY
    WITH gone AS (
        DELETE FROM rowlock.running
        WHERE ctid = ANY (ARRAY(
            SELECT r.ctid FROM rowlock.running r LEFT JOIN rowlock.workers w ON w.id = r.owner
            WHERE greatest(r.locked_at, w.seen_at) + r.visibility_ms * interval '1 millisecond' < clock
            LIMIT _limit FOR UPDATE OF r SKIP LOCKED))
        RETURNING *
    ), sorted AS (
        SELECT g.*, j.seq, j.priority, j.queue, j.type, j.max_attempts, j.unique_key, j.company_id, j.payload,
               CASE WHEN g.cancel_requested THEN 3 WHEN g.attempt >= j.max_attempts THEN 2 ELSE 4 END AS outcome,
               coalesce(_delays[array_position(_queues, j.queue)], 0) AS delay,
               'lease ran out: worker ' || g.owner || ' was not seen for ' || g.visibility_ms || ' ms' AS error
        FROM gone g CROSS JOIN LATERAL (SELECT * FROM rowlock.jobs x WHERE x.id = g.job_id OFFSET 0) j
    ), over AS (
        INSERT INTO rowlock.finished (job_id, started_at, finished_at, lease, attempt, deaths, status, error)
        SELECT job_id, locked_at, clock, lease, attempt, deaths, outcome, error FROM sorted WHERE outcome <= 3
    ), freed AS (
        DELETE FROM rowlock.unique_keys k USING sorted s
        WHERE s.releases_key AND s.outcome <= 3 AND k.key = s.unique_key AND k.job_id = s.job_id
    ), soon AS (
        INSERT INTO rowlock.ready (seq, job_id, lease, priority, attempt, deaths, queue, limit_key, available_at, updated_at, error)
        SELECT seq, job_id, lease, priority, attempt, deaths, queue, limit_key, clock, clock, error FROM sorted
        WHERE outcome > 3 AND delay <= 0
    ), later AS (
        INSERT INTO rowlock.delayed (job_id, seq, available_at, lease, priority, attempt, deaths, queue, limit_key, updated_at, error)
        SELECT job_id, seq, clock + delay * interval '1 second', lease, priority, attempt, deaths, queue, limit_key, clock, error
        FROM sorted WHERE outcome > 3 AND delay > 0
    ), tallied AS (
        INSERT INTO rowlock.tallies (at, queue, type, alive, delayed, failed, cancelled, failures, rescues)
        SELECT clock, queue, type, -count(*) FILTER (WHERE outcome <= 3), count(*) FILTER (WHERE outcome > 3 AND delay > 0),
               count(*) FILTER (WHERE outcome = 2), count(*) FILTER (WHERE outcome = 3),
               count(*) FILTER (WHERE outcome <> 3), count(*)
        FROM sorted GROUP BY queue, type
    )
    SELECT s.job_id::text, s.type, s.queue, s.owner::text, s.attempt, s.max_attempts, s.outcome,
           s.company_id, s.payload::text, s.error FROM sorted s;
END $$;

-- Cancels a waiting job, or asks the owner of a running one to stop.
CREATE FUNCTION rowlock.cancel(_id uuid, _now timestamptz) RETURNS text
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
    -- It may move on while we look; each place is tried again, a few times.
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
            INSERT INTO rowlock.tallies (at, queue, type, alive, delayed, cancelled)
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

-- Queues failed or cancelled jobs again, as the operator asked. Rows: the id, and whether its unique key was free.
CREATE FUNCTION rowlock.retry(_ids uuid[], _now timestamptz) RETURNS TABLE (id text, retried boolean)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    clock timestamptz := coalesce(_now, clock_timestamp());
    held  uuid[];
BEGIN
    SELECT array_agg(f.job_id) INTO held FROM (
        SELECT f.job_id FROM rowlock.finished f WHERE f.job_id = ANY (_ids) AND f.status <> 1
        ORDER BY f.job_id FOR UPDATE SKIP LOCKED) f;

    RETURN QUERY
    WITH wanted AS (
        SELECT j.* FROM rowlock.jobs j WHERE j.id = ANY (held)
    ), keys AS (
        INSERT INTO rowlock.unique_keys AS k (key, job_id, expires_at)
        SELECT DISTINCT ON (w.unique_key) w.unique_key, w.id, 'infinity'::timestamptz FROM wanted w WHERE w.releases_key
        ORDER BY w.unique_key, w.seq DESC
        ON CONFLICT (key) DO UPDATE SET job_id = excluded.job_id, expires_at = excluded.expires_at
        WHERE k.expires_at <= clock OR k.job_id = excluded.job_id
        RETURNING k.job_id
    ), again AS (
        SELECT w.* FROM wanted w
        WHERE CASE WHEN w.releases_key THEN w.id IN (SELECT job_id FROM keys)
                   ELSE NOT EXISTS (SELECT FROM rowlock.unique_keys k
                                    WHERE k.key = w.unique_key AND k.job_id <> w.id AND k.expires_at > clock) END
    ), gone AS (
        DELETE FROM rowlock.finished f USING again a WHERE f.job_id = a.id AND f.status <> 1
        RETURNING a.seq, a.id, f.lease, a.priority, a.queue, a.type, a.limit_key, f.error, f.status
    ), tallied AS (
        INSERT INTO rowlock.tallies (at, queue, type, alive, failed, cancelled)
        SELECT clock, queue, type, count(*), -count(*) FILTER (WHERE status = 2), -count(*) FILTER (WHERE status = 3)
        FROM gone GROUP BY queue, type
    ), resolved AS (
        UPDATE rowlock.job_failures x SET resolved_at = clock
        WHERE x.job_id = ANY (ARRAY(SELECT id FROM gone)) AND x.resolved_at IS NULL
    ), soon AS (
        INSERT INTO rowlock.ready (seq, job_id, lease, priority, attempt, deaths, queue, limit_key, available_at, updated_at, error)
        -- The lease number goes on at the next multiple of 65,536: the remainder counts the claims since.
        SELECT seq, id, (lease + 65535) / 65536 * 65536, priority, 0, 0, queue, limit_key, clock, clock, error FROM gone
        RETURNING job_id, queue
    ), told AS (
        SELECT pg_notify('rowlock', 'queue:' || q.queue) FROM (SELECT DISTINCT queue FROM soon) q
    )
    SELECT w.id::text, s.job_id IS NOT NULL
    FROM wanted w LEFT JOIN soon s ON s.job_id = w.id, (SELECT count(*) FROM told) done;
END $$;

-- Since when the ready job that waits longest is available; null where none is ready.
CREATE FUNCTION rowlock.ready_since(_queue text) RETURNS timestamptz
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
BEGIN
    RETURN least(
        (SELECT j.created_at
         FROM (SELECT r.job_id FROM rowlock.ready r WHERE r.queue = _queue AND r.available_at IS NULL
               ORDER BY r.available_at NULLS FIRST, r.seq LIMIT 1) f
         CROSS JOIN LATERAL (SELECT x.created_at FROM rowlock.jobs x WHERE x.id = f.job_id OFFSET 0) j),
        (SELECT r.available_at FROM rowlock.ready r WHERE r.queue = _queue AND r.available_at IS NOT NULL
         ORDER BY r.available_at NULLS FIRST LIMIT 1));
END $$;

-- Jobs by their ids, whole. A plan made while the tables were empty would read all of them for ever after, so it is made
-- for keys alone.
CREATE FUNCTION rowlock.records(_ids uuid[]) RETURNS SETOF rowlock.all_jobs
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
BEGIN
    RETURN QUERY
    SELECT a.* FROM unnest(_ids) AS u (id) CROSS JOIN LATERAL (SELECT * FROM rowlock.all_jobs x WHERE x.id = u.id OFFSET 0) a;
END $$;
