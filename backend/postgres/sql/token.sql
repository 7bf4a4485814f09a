-- Counts, for modes whose lock is a session's: the token is committed by itself.
-- $1 name  $2 holder  $3 least token, 0 for the server's time  $4 for how many microseconds it is in use, as in keep.sql
-- $5 the session that has the lock or is about to try for it. Returns the token.
-- Where both modes are used (mixed=true) a lease may have the row: its time is its own, and one that has expired stays so.
INSERT INTO {locks} AS l (name, version, holder, expires_at, session)
SELECT $1::text,
	CASE WHEN $3::bigint > 0 THEN $3::bigint ELSE (extract(epoch FROM clock_timestamp()) * 1000000)::bigint END,
	$2::text, clock_timestamp() + $4::bigint * interval '1 microsecond', $5::bigint
WHERE {free} AND {durable}
ON CONFLICT (name) DO UPDATE SET
	version = greatest(l.version + 1, $3::bigint), holder = $2::text, session = $5::bigint,
	id = CASE WHEN l.expires_at > clock_timestamp() THEN l.id END,
	expires_at = CASE WHEN l.id IS NOT NULL AND l.expires_at > clock_timestamp() THEN l.expires_at
		ELSE greatest(l.expires_at, clock_timestamp() + $4::bigint * interval '1 microsecond') END
RETURNING version
