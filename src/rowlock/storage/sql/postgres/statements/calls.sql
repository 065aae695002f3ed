-- name: take_call
SELECT rowlock.take_call($1, $2, $3, $4, $5, $6, $7)

-- name: end_call
SELECT rowlock.end_call($1, $2, $3)

-- name: rest_calls
INSERT INTO rowlock.call_keys AS k (key, rests_until)
VALUES ($1, coalesce($3::timestamptz, clock_timestamp()) + $2::double precision * interval '1 second')
ON CONFLICT (key) DO UPDATE SET rests_until = greatest(k.rests_until, excluded.rests_until)

-- name: call_budget
SELECT u.key,
       (SELECT count(*) FROM rowlock.call_permits p WHERE p.key = u.key AND p.free_at > c.now)
       + (SELECT coalesce(sum(s.calls), 0) FROM rowlock.call_sums s WHERE s.key = u.key AND s.free_at > c.now),
       (SELECT k.rests_until FROM rowlock.call_keys k WHERE k.key = u.key AND k.rests_until > c.now)
FROM unnest($1::text[]) WITH ORDINALITY AS u (key, ordinal),
     (SELECT coalesce($2::timestamptz, clock_timestamp()) AS now OFFSET 0) c
ORDER BY u.ordinal

-- name: hold_subjects
-- In the order of keys, here and below: two workers that lock the same subjects cannot deadlock.
INSERT INTO rowlock.subjects AS s (kind, key, holder, held_until, touched_at)
SELECT $1, u.key, $3, c.now + $4::double precision * interval '1 second', c.now
FROM unnest($2::text[]) AS u (key), (SELECT coalesce($5::timestamptz, clock_timestamp()) AS now OFFSET 0) c
ORDER BY u.key
ON CONFLICT (kind, key) DO UPDATE SET holder = excluded.holder, held_until = excluded.held_until
WHERE s.holder IS NULL OR s.holder = excluded.holder OR s.held_until <= excluded.touched_at
RETURNING s.key, s.marks::text

-- name: mark_subjects
WITH held AS MATERIALIZED (
    SELECT s.key, s.marks FROM rowlock.subjects s
    WHERE s.kind = $1 AND s.key = ANY ($3::text[]) AND s.holder = $2 ORDER BY s.key FOR UPDATE
), told AS (
    SELECT h.key, h.marks AS before, u.marks::jsonb AS marks
    FROM held h JOIN unnest($3::text[], $4::text[]) AS u (key, marks) ON u.key = h.key
)
UPDATE rowlock.subjects s
SET holder = NULL, touched_at = coalesce($5::timestamptz, clock_timestamp()), marks = (
    SELECT coalesce(jsonb_object_agg(m.property, m.mark), '{}')
    FROM (SELECT e.property, max(e.mark COLLATE "C") AS mark
          FROM (SELECT * FROM jsonb_each_text(t.before) UNION ALL SELECT * FROM jsonb_each_text(t.marks)) e (property, mark)
          GROUP BY e.property) m)
FROM told t WHERE s.kind = $1 AND s.key = t.key
RETURNING s.key

-- name: free_subjects
WITH held AS MATERIALIZED (
    SELECT s.key FROM rowlock.subjects s
    WHERE s.kind = $1 AND s.key = ANY ($3::text[]) AND s.holder = $2 ORDER BY s.key FOR UPDATE
)
UPDATE rowlock.subjects s SET holder = NULL, touched_at = coalesce($4::timestamptz, clock_timestamp())
FROM held h WHERE s.kind = $1 AND s.key = h.key

-- name: prune_calls
WITH clock AS (
    SELECT coalesce($3::timestamptz, clock_timestamp()) AS now OFFSET 0
), calls AS (
    DELETE FROM rowlock.call_permits WHERE ctid = ANY (ARRAY(
        SELECT p.ctid FROM rowlock.call_permits p WHERE p.free_at <= (SELECT now FROM clock) LIMIT $2 FOR UPDATE SKIP LOCKED))
    RETURNING 1
), sums AS (
    DELETE FROM rowlock.call_sums WHERE ctid = ANY (ARRAY(
        SELECT s.ctid FROM rowlock.call_sums s WHERE s.free_at <= (SELECT now FROM clock) LIMIT $2 FOR UPDATE SKIP LOCKED))
    RETURNING 1
), idle AS (
    DELETE FROM rowlock.subjects WHERE ctid = ANY (ARRAY(
        SELECT s.ctid FROM rowlock.subjects s, clock c
        WHERE s.touched_at < c.now - $1::double precision * interval '1 day' AND (s.holder IS NULL OR s.held_until <= c.now)
        ORDER BY s.touched_at LIMIT $2 FOR UPDATE OF s SKIP LOCKED))
    RETURNING 1
)
SELECT (SELECT count(*) FROM calls) + (SELECT count(*) FROM sums) + (SELECT count(*) FROM idle)
