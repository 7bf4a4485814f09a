-- Deletes locks that nobody has used for long, some at a time. Once they are gone the server's time alone must give
-- greater tokens, also if it steps back by the retention.
-- $1 retention in microseconds  $2 how many. Returns how many it was.
WITH old AS (
	SELECT name FROM {locks}
	WHERE expires_at < clock_timestamp() - $1::bigint * interval '1 microsecond'
		AND version < extract(epoch FROM clock_timestamp()) * 1000000 - $1::bigint
	LIMIT $2::bigint
	FOR UPDATE SKIP LOCKED
), gone AS (
	DELETE FROM {locks} WHERE name IN (SELECT name FROM old) RETURNING 1
)
SELECT count(*) FROM gone
