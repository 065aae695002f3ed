-- name: has_unnotified
SELECT EXISTS (SELECT FROM rowlock.job_failures WHERE is_final_attempt AND notice_id IS NULL)

-- name: assign_notification
UPDATE rowlock.job_failures SET notice_id = $1::uuid WHERE id = ANY (ARRAY(
    SELECT id FROM rowlock.job_failures WHERE is_final_attempt AND notice_id IS NULL
    ORDER BY first_failed_at LIMIT $2 FOR UPDATE SKIP LOCKED))

-- name: said_deaths
SELECT job_name, queue_name, count(*), min(first_failed_at), max(first_failed_at), max(attempts),
       (array_agg(job_id::text ORDER BY first_failed_at DESC, id DESC))[1:3],
       (array_agg(failed_reason ORDER BY first_failed_at DESC, id DESC))[1]
FROM rowlock.job_failures WHERE notice_id = $1::uuid
GROUP BY job_name, queue_name ORDER BY count(*) DESC, job_name, queue_name

-- name: add_measures
INSERT INTO rowlock.measures AS m (name, labels, value)
SELECT * FROM unnest($1::text[], $2::text[], $3::double precision[]) AS u (name, labels, value) ORDER BY 1, 2
ON CONFLICT (name, labels) DO UPDATE SET value = m.value + excluded.value

-- name: measures
SELECT name, labels, value FROM rowlock.measures ORDER BY name, labels
