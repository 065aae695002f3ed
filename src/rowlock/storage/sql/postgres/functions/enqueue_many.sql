-- Creates jobs, in order. A column of equal values may be sent as an array of one, a column of nulls as an empty array.
-- Returns one row per job that was not created: the job that holds its unique key, and whether retention has removed that
-- job. If _newest_wins is set for a job that is not created, the holder takes over its payload and its id.
CREATE OR REPLACE FUNCTION rowlock.enqueue_many(
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
    -- Repeated a few times: a key may be freed between its refusal and the look-up.
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

    -- Most calls have one job, or many that differ in their payloads only: half the work of the general case.
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
        INSERT INTO rowlock.counter_deltas (at, queue, type, alive) VALUES (clock, _queues[1], _types[1], cardinality(_ids));
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

        INSERT INTO rowlock.counter_deltas (at, queue, type, alive, delayed)
        SELECT clock, coalesce(u.queue, _queues[1]), coalesce(u.type, _types[1]), count(*),
               count(*) FILTER (WHERE coalesce(u.available_at > clock, u.delay > 0, _delays[1] > 0, false))
        FROM unnest(_ids, _types, _queues, _delays, _available_at) WITH ORDINALITY
             AS u (id, type, queue, delay, available_at, ordinal)
        WHERE all_new OR u.ordinal <> ALL (refused)
        GROUP BY 2, 3;
    END IF;

    IF cardinality(_newest_wins) > 0 AND NOT all_new THEN
        -- The insert above has locked the keys that are taken: their jobs can neither end nor free them before this commits.
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
