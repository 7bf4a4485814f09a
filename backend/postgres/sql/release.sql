-- Frees locks, and notes in each the ID that ended: a duplicate of its request that comes late is to be refused.
-- $1 names  $2 IDs  $3 what wakes those who wait for each  $4 for how many of them to find out whether anybody waits
-- $5 how many characters of IDs a lock remembers
-- Returns the positions, from 1, of those that were freed, and whether somebody was notified.
--
-- The sub-selects hide from the planner how many names there are: otherwise it would plan each call anew, which takes twice
-- as long as the rest.
--
-- The commit does not wait for the disk: a release that a crash undoes is a lock that stays until it expires.
-- Who waits for a lock has the advisory lock of its name, shared, so that a release knows whether to notify: NOTIFY takes
-- a lock that all notifying transactions of the cluster share, until it has committed. Here that is no time, as said above.
-- The server has no room for many advisory locks, so for those after $4 it notifies anyway.
UPDATE {locks} AS l SET
	id = NULL, ended = left(l.id || l.ended, $5::integer), holder = '', expires_at = clock_timestamp()
FROM unnest((SELECT $1::text[]), (SELECT $2::text[]), (SELECT $3::bigint[])) WITH ORDINALITY AS g (name, id, key, i)
WHERE l.name = g.name AND l.id = g.id AND l.expires_at > clock_timestamp()
	AND set_config('synchronous_commit', 'off', true) IS NOT NULL
RETURNING g.i, CASE
	WHEN g.i > $4::bigint OR NOT pg_try_advisory_xact_lock(g.key) THEN pg_notify('{channel}', to_hex(g.key))
END IS NOT NULL
