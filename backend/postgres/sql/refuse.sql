-- Notes IDs that ended without having their lock: what was asked for them may be on its way yet, and is to be refused when
-- it comes. One that has come meanwhile is ended.
-- $1 names  $2 IDs  $3 how many characters of IDs a lock remembers
INSERT INTO {locks} AS l (name, version, ended, holder, expires_at)
SELECT g.name, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, string_agg(g.id, ''), '', clock_timestamp()
FROM unnest($1::text[], $2::text[]) AS g (name, id)
WHERE set_config('synchronous_commit', 'off', true) IS NOT NULL
GROUP BY g.name
ORDER BY g.name
ON CONFLICT (name) DO UPDATE SET
	ended = left(EXCLUDED.ended || l.ended, greatest($3::integer, length(EXCLUDED.ended))),
	id = CASE WHEN strpos(EXCLUDED.ended, l.id) > 0 THEN NULL ELSE l.id END,
	holder = CASE WHEN strpos(EXCLUDED.ended, l.id) > 0 THEN '' ELSE l.holder END
WHERE strpos(l.ended, EXCLUDED.ended) = 0 OR strpos(EXCLUDED.ended, l.id) > 0
