-- Extends locks that have not expired.
-- $1 names  $2 IDs  $3 TTLs in microseconds. Returns the positions, from 1, of those that were extended.
--
-- The sub-selects are explained in release.sql.
UPDATE {locks} AS l SET expires_at = clock_timestamp() + g.ttl * interval '1 microsecond'
FROM unnest((SELECT $1::text[]), (SELECT $2::text[]), (SELECT $3::bigint[])) WITH ORDINALITY AS g (name, id, ttl, i)
WHERE l.name = g.name AND l.id = g.id AND l.expires_at > clock_timestamp() AND {durable}
RETURNING g.i
