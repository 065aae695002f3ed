-- Enqueues one job from plain SQL, a trigger or any other language; returns its id, or the id of the job that holds the
-- unique key. The payload limit is that of the application.
CREATE OR REPLACE FUNCTION rowlock.enqueue(
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
