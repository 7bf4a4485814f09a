-- Deletes rows to be locked that nobody has locked now. They contain nothing, so whoever comes next makes them anew.
-- $1 retention in microseconds  $2 how many. Returns how many it was.
WITH old AS (
	SELECT name FROM {rows}
	WHERE created_at < clock_timestamp() - $1::bigint * interval '1 microsecond'
		AND NOT EXISTS (SELECT FROM {locks} AS l WHERE l.name = {rows}.name AND
			l.expires_at > clock_timestamp() - $1::bigint * interval '1 microsecond')
	LIMIT $2::bigint
	FOR UPDATE SKIP LOCKED
), gone AS (
	DELETE FROM {rows} WHERE name IN (SELECT name FROM old) RETURNING 1
)
SELECT count(*) FROM gone
