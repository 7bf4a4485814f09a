-- Notes that locks are held, lest a sweep deletes their counters.
-- $1 names  $2 for how many microseconds they are held at most, or until this is noted again
-- A row that a lease has (mixed=true) is left alone: its time is its own.
-- The commit does not wait for the disk: what a crash undoes is noted again.
UPDATE {locks} AS l SET expires_at = greatest(l.expires_at, clock_timestamp() + g.time * interval '1 microsecond')
FROM unnest($1::text[], $2::bigint[]) AS g (name, time)
WHERE l.name = g.name AND l.id IS NULL AND set_config('synchronous_commit', 'off', true) IS NOT NULL
