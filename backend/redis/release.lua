-- Ends a lock that this ID has, wakes those who wait, and notes the ID: a release that is repeated because its reply was
-- lost must not look like a loss, and a late duplicate of the acquire is refused. The note has the last four IDs that
-- ended, the latest first: "+ID" was released, "-ID" had nothing to release.
-- KEYS[1] lock   KEYS[2] counter   ARGV[1] ID   ARGV[2] channel   ARGV[3] retention in ms
-- Returns {1, receivers} released, {0} not ours.
local id = ARGV[1]
local held = redis.call('GET', KEYS[1])
local counter = redis.pcall('GET', KEYS[2]) -- whatever is there must not keep a lock from being released
local last, note = string.match(type(counter) == 'string' and counter or '', '^(%d+):(.*)$')
note = note or ''

local function remember(sign)
  local keep = math.max(redis.call('PTTL', KEYS[2]), tonumber(ARGV[3]))
  local notes = sign .. id .. string.sub(note, 1, 3 * (#id + 1))
  return redis.pcall('SET', KEYS[2], (last or '0') .. ':' .. notes, 'PX', string.format('%.0f', keep))
end

if held and string.sub(held, 1, #id + 1) == id .. ':' then
  redis.call('DEL', KEYS[1]) -- first: a server that is out of memory allows it, and then also what follows
  last = last or string.match(held, '^%d+', #id + 2)
  remember('+')
  local receivers = redis.pcall('PUBLISH', ARGV[2], 'free') -- those whom it does not reach look again by themselves
  return {1, type(receivers) == 'number' and receivers or 0}
end
if string.find(note, '+' .. id, 1, true) then
  return {1, 0}
end
if not string.find(note, '-' .. id, 1, true) then
  local answer = remember('-')
  if answer.err and not string.find(answer.err, 'OOM', 1, true) then
    return answer -- such as READONLY: the word of a replica does not count
  end
end
return {0}
