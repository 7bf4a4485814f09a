-- Sets the remaining time of a lock that this ID has, and keeps its counter. Never creates a lock.
-- KEYS[1] lock   KEYS[2] counter   ARGV[1] ID   ARGV[2] ttl in ms   ARGV[3] retention in ms
-- Returns {1} renewed, {0} not ours, {2} ours, but this is no ttl.
local held = redis.call('GET', KEYS[1])
if not held then
  redis.call('DEL', KEYS[1]) -- changes nothing, but a replica, whose word does not count, refuses it
  return {0}
end
if string.sub(held, 1, #ARGV[1] + 1) ~= ARGV[1] .. ':' then
  redis.call('SET', KEYS[1], '', 'NX') -- changes nothing either
  return {0}
end
if tonumber(ARGV[2]) < 1 then
  return {2} -- PEXPIRE would delete it
end
local left = redis.call('PTTL', KEYS[2])
if left >= 0 and left < math.max(ARGV[3] / 2, ARGV[2] * 2) then -- the counter outlives the lock by the retention at most
  redis.call('PEXPIRE', KEYS[2], string.format('%.0f', math.max(ARGV[3], ARGV[2] * 4)))
end
return {redis.call('PEXPIRE', KEYS[1], ARGV[2])}
