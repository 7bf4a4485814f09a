-- Extends locks that have not expired.
-- $1 names  $2 IDs  $3 TTLs in microseconds. Returns the positions, from 1, of those that are there, and whether they were
-- extended: a row that somebody else has locked, in psql perhaps, is left for the next time, so that the others need not wait.
--
-- The sub-selects are explained in release.sql.
WITH asked AS MATERIALIZED (
	SELECT * FROM unnest((SELECT $1::text[]), (SELECT $2::text[]), (SELECT $3::bigint[])) WITH ORDINALITY AS g (name, id, ttl, i)
), got AS MATERIALIZED (
	SELECT l.name, g.ttl, g.i FROM {locks} AS l JOIN asked AS g ON l.name = g.name AND l.id = g.id
	WHERE l.expires_at > clock_timestamp()
	FOR UPDATE OF l SKIP LOCKED
), extended AS (
	UPDATE {locks} AS l SET expires_at = clock_timestamp() + got.ttl * interval '1 microsecond'
	FROM got WHERE l.name = got.name AND {durable}
	RETURNING got.i
)
SELECT i, true FROM extended
UNION ALL
SELECT g.i, false FROM {locks} AS l JOIN asked AS g ON l.name = g.name AND l.id = g.id
WHERE l.expires_at > clock_timestamp() AND NOT EXISTS (SELECT FROM got WHERE got.i = g.i)
