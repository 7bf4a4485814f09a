-- Sets the remaining time of a lock that this ID has. Never creates one.
-- KEYS[1] lock   ARGV[1] ID   ARGV[2] ttl in ms
-- Returns {1} renewed, {0} not ours, {2} ours, but this is no ttl.
local held = redis.call('GET', KEYS[1])
if not held then
  redis.call('DEL', KEYS[1]) -- changes nothing, but a replica, whose word does not count, refuses it
  return {0}
end
if string.sub(held, 1, #ARGV[1] + 1) ~= ARGV[1] .. ':' then
  return {0}
end
if tonumber(ARGV[2]) < 1 then
  return {2} -- PEXPIRE would delete it
end
return {redis.call('PEXPIRE', KEYS[1], ARGV[2])}
