-- name: enqueue
-- Ids and payloads are one text each, joined by a character that neither can contain: drivers take longer to encode the
-- elements of an array than the server takes to split a text.
SELECT ordinal, existing, removed FROM rowlock.enqueue_many(
    CAST(string_to_array(CAST($1 AS text), chr(30)) AS uuid[]), CAST($2 AS text[]),
    string_to_array(CAST($3 AS text), chr(30)), CAST($4 AS text[]), CAST($5 AS integer[]),
    CAST($6 AS integer[]), CAST($7 AS integer[]), CAST($8 AS double precision[]), CAST($9 AS timestamptz[]),
    CAST($10 AS text[]), CAST($11 AS text[]), CAST($12 AS text[]), CAST($13 AS text[]),
    CAST($14 AS double precision[]), CAST($15 AS boolean[]), CAST($16 AS boolean[]), CAST($17 AS boolean),
    CAST($18 AS timestamptz))

-- name: newest
SELECT id::text, newest::text, payload FROM rowlock.jobs WHERE id = ANY ($1::uuid[]) AND newest IS NOT NULL

-- name: free_keys
SELECT rowlock.free_keys($1::uuid[], $2::uuid[])

-- name: depth
SELECT count(*) FROM (
    (SELECT FROM rowlock.ready WHERE queue = $1 AND limit_key IS NULL LIMIT $2)
    UNION ALL (SELECT FROM rowlock.ready WHERE queue = $1 AND limit_key IS NOT NULL LIMIT $2)
    UNION ALL (SELECT FROM rowlock.delayed WHERE queue = $1 LIMIT $2)
    LIMIT $2) waiting

-- name: wake
SELECT pg_notify('rowlock', 'queue:' || queue) FROM unnest($1::text[]) AS queue
