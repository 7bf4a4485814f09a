-- One attempt at one lock, safe to repeat.
-- KEYS[1] lock: "ID:TOKEN:HOLDER"    KEYS[2] counter: "TOKEN:NOTE", see release.lua
-- ARGV[1] ID   ARGV[2] ttl in ms   ARGV[3] least token, 0 for the server's time   ARGV[4] holder   ARGV[5] retention in ms
-- Returns {1, token} granted, {0, remaining ms or -1, holder} held, {2} this ID was released before, {3} no token left.
local id = ARGV[1]
local held = redis.call('GET', KEYS[1])
if held then
  if string.sub(held, 1, #id + 1) ~= id .. ':' then
    redis.call('SET', KEYS[1], '', 'NX') -- changes nothing, but a replica, whose word does not count, refuses it
    return {0, redis.call('PTTL', KEYS[1]), string.match(held, '^[A-Z2-7]+:%d+:(.*)$') or ''}
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return {1, string.match(held, '^%d+', #id + 2)}
end

local last, note = string.match(redis.call('GET', KEYS[2]) or '', '^(%d+):(.*)$')
if note and string.find(note, id, 1, true) then
  redis.call('DEL', KEYS[1]) -- as above
  return {2} -- a late duplicate: the release has overtaken it
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local least = tonumber(ARGV[3])
if least == 0 then least = now end
local token = math.max((tonumber(last) or 0) + 1, least)
if token > 9007199254740991 then
  return {3} -- beyond this a Lua number is not exact
end
-- The counter may expire once the server's time alone gives greater tokens, even after a step back by the retention.
local keep = math.max(ARGV[5] + math.ceil(math.max(token - now, 0) / 1000), tonumber(ARGV[2]))
token = string.format('%.0f', token)
redis.call('SET', KEYS[2], token .. ':' .. (note or ''), 'PX', string.format('%.0f', keep))
redis.call('SET', KEYS[1], id .. ':' .. token .. ':' .. ARGV[4], 'NX', 'PX', ARGV[2])
return {1, token}
