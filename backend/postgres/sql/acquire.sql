-- One attempt at one lock: one statement, safe to repeat. One that is refused writes nothing.
-- $1 name  $2 ID  $3 TTL in microseconds  $4 holder  $5 least token, 0 for the server's time
-- Returns one row (token, holder, remaining, over): a token if granted, else 0 with who has it and for how many
-- microseconds, less than 0 if it has just changed hands, and whether this ID was released before, so that the attempt has
-- come too late. No row: it has just been made by somebody else.
WITH seen AS (
	SELECT holder, expires_at, id, strpos(ended, $2::text) > 0 AS over FROM {locks} WHERE name = $1::text
), taken AS (
	UPDATE {locks} SET
		version = CASE WHEN id = $2::text THEN version ELSE greatest(version + 1, $5::bigint) END,
		id = $2::text,
		holder = $4::text,
		expires_at = clock_timestamp() + $3::bigint * interval '1 microsecond'
	WHERE name = $1::text AND (id IS NULL OR id = $2::text OR expires_at <= clock_timestamp())
		AND strpos(ended, $2::text) = 0 AND {durable}
	RETURNING version
), made AS (
	INSERT INTO {locks} (name, version, id, holder, expires_at)
	SELECT $1::text,
		CASE WHEN $5::bigint > 0 THEN $5::bigint ELSE (extract(epoch FROM clock_timestamp()) * 1000000)::bigint END,
		$2::text, $4::text, clock_timestamp() + $3::bigint * interval '1 microsecond'
	WHERE NOT EXISTS (SELECT FROM seen) AND {durable}
	ON CONFLICT (name) DO NOTHING
	RETURNING version
)
SELECT version, ''::text, 0::bigint, false FROM taken
UNION ALL
SELECT version, '', 0, false FROM made
UNION ALL
SELECT 0, holder, CASE WHEN id IS NULL THEN -1 ELSE (extract(epoch FROM expires_at - clock_timestamp()) * 1000000)::bigint END, over
FROM seen WHERE NOT EXISTS (SELECT FROM taken)
