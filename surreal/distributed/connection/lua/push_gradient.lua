-- Queue one gradient for all parameter servers, count its env steps, or refuse it: once, however often it is called.
--
-- KEYS  1 meta of the replay's first shard (hash)   2 state of the gradients (hash)   3 outcome of the sender's last push
--       4 .. 3+n the servers' queues (streams)      then the m parts as they were stored just before, then the m names
--       that they get; stored parts are removed where the gradient is refused
-- ARGV  1 epoch to use if there is none   2 id of the gradient           3 sequence number of its sender
--       4 env steps                       5 bytes of all parts           6 bound of what waits, bytes
--       7 version it was computed with    8 versions it may be behind, or ''   9 '1' if it is finite
--      10 '1' if it is dropped when there is no room   11 life of key 3, s   12 n   13 .. 12+n a head for each server
-- Returns {status, epoch, env steps of the run, newest version}; status is 'ok', or why it is refused for good:
--   'stale', 'not_finite', 'full'; or 'wait': there is no room, or the servers are about to agree
--   on a state to resume from; nothing was counted.
local function count(value)
  local number = tonumber(value or '0')
  return number and number >= 0 and number <= 2 ^ 53 and number % 1 == 0 and number or 0
end

local meta = redis.call('HMGET', KEYS[1], 'epoch', 'steps', 'other_steps')
local state = redis.call('HMGET', KEYS[2], 'version', 'live_bytes', 'forming')
local epoch, steps = meta[1] or ARGV[1], count(meta[2]) + count(meta[3])
local newest, live = count(state[1]), count(state[2])
local servers = tonumber(ARGV[12])
local first = 4 + servers
local parts = (#KEYS - first + 1) / 2

local function answer(status)
  for i = first, first + parts - 1 do
    redis.call('UNLINK', KEYS[i])
  end
  return {status, epoch, steps, newest}
end

local last = redis.call('GET', KEYS[3])
if last then
  local sequence, status = string.match(last, '^(%d+) (.+)$')
  if sequence and tonumber(ARGV[3]) <= tonumber(sequence) then
    redis.call('EXPIRE', KEYS[3], ARGV[11])
    return answer(status)
  end
end

local status = 'ok'
if ARGV[9] ~= '1' then
  status = 'not_finite'
elseif ARGV[8] ~= '' and newest - tonumber(ARGV[7]) > tonumber(ARGV[8]) then
  status = 'stale'
else
  -- A gradient larger than the bound still fits into an empty queue, so that its sender does not wait forever.
  local has_room = live == 0 or live + tonumber(ARGV[5]) <= tonumber(ARGV[6])
  if state[3] then
    return answer('wait')
  end
  for i = first, first + parts - 1 do
    has_room = has_room and redis.call('EXISTS', KEYS[i]) == 1  -- at maxmemory it was not taken
  end
  if not has_room then
    if ARGV[10] ~= '1' then
      return answer('wait')
    end
    status = 'full'
  end
end

steps = steps + tonumber(ARGV[4])
-- A write that takes memory comes first: at maxmemory it fails before anything is changed.
redis.call('SET', KEYS[3], ARGV[3] .. ' ' .. status, 'EX', ARGV[11])
redis.call('HSET', KEYS[1], 'steps', string.format('%.0f', count(meta[2]) + tonumber(ARGV[4])))
if not meta[1] then
  redis.call('HSET', KEYS[1], 'epoch', epoch)
end
if status ~= 'ok' then
  redis.call('HINCRBY', KEYS[2], 'refused:' .. status, 1)
  return answer(status)
end
for i = 1, servers do
  redis.call('XADD', KEYS[3 + i], '*', 'id', ARGV[2], 'head', ARGV[12 + i], 'steps', string.format('%.0f', steps))
end
for i = first, first + parts - 1 do
  redis.call('RENAME', KEYS[i], KEYS[i + parts])
  redis.call('PERSIST', KEYS[i + parts])
end
redis.call('HINCRBY', KEYS[2], 'live_bytes', ARGV[5])
redis.call('HINCRBY', KEYS[2], 'pushed', 1)
return answer('ok')
