-- Does once, on a key of its own, all that the other scripts do, so that a missing right shows before a lock is taken.
-- KEYS[1] probe   ARGV[1] channel
redis.call('GET', KEYS[1])
redis.call('TIME')
redis.call('SET', KEYS[1], '', 'NX', 'PX', '1000')
redis.call('PEXPIRE', KEYS[1], '1000')
redis.call('PTTL', KEYS[1])
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', ARGV[1], '')
return {1}
