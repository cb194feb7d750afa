-- Report of a parameter server from time to time: the newest version, and, to a Redis that was emptied, the env steps.
--
-- KEYS  1 meta of the replay's first shard (hash)   2 state of the gradients (hash)
-- ARGV  1 epoch to use if there is none   2 newest version published   3 env steps of the run, as known to the server:
--       added if no process has counted yet
-- Any agent may write to both. Env steps that are not a count, or are more than 2^30 ahead of what the server knows, are
-- replaced by what it knows, and so is a version that is more than 1000 ahead.
-- Returns {epoch, env steps of the run, newest version}.
--
-- PERSIST on a hash that never expires does nothing, but it is a write: after one, Redis lets a script continue at maxmemory.
local function count(value, most)
  local number = tonumber(value or '0')
  return number and number >= 0 and number <= most and number % 1 == 0 and number or nil
end

redis.call('PERSIST', KEYS[1])
local meta = redis.call('HMGET', KEYS[1], 'epoch', 'counted', 'steps', 'other_steps')
local epoch = meta[1]
if not epoch then
  epoch = ARGV[1]
  redis.call('HSET', KEYS[1], 'epoch', epoch)
end
local known = tonumber(ARGV[3])
local others, steps = count(meta[4], 2 ^ 53) or 0, count(meta[3], 2 ^ 53)
if not steps or steps + others > known + 2 ^ 30 then
  steps, others = known, 0
  redis.call('HSET', KEYS[1], 'steps', ARGV[3], 'other_steps', '0', 'counted', '1')
elseif not meta[2] then
  steps = steps + known
  redis.call('HSET', KEYS[1], 'steps', string.format('%.0f', steps), 'counted', '1')
end
local told = tonumber(ARGV[2])
local version = count(redis.call('HGET', KEYS[2], 'version'), told + 1000)
if not version or told > version then
  version = told
  redis.call('HSET', KEYS[2], 'version', ARGV[2])
end
return {epoch, steps + others, version}
