-- What a parameter server tells from time to time: the newest version, and, to a Redis that was emptied, the env steps.
--
-- KEYS  1 meta of the replay's first shard (hash)   2 state of the gradients (hash)
-- ARGV  1 epoch to use if there is none   2 newest version published   3 env steps of the run, as known to the server:
--       added where nobody has counted up yet
-- Returns {epoch, env steps of the run, newest version}.
--
-- PERSIST on a hash that never expires does nothing, but it is a write: after one, Redis lets a script go on at maxmemory.
redis.call('PERSIST', KEYS[1])
local meta = redis.call('HMGET', KEYS[1], 'epoch', 'counted')
local epoch = meta[1]
if not epoch then
  epoch = ARGV[1]
  redis.call('HSET', KEYS[1], 'epoch', epoch)
end
if not meta[2] then
  redis.call('HINCRBY', KEYS[1], 'steps', ARGV[3])
  redis.call('HSET', KEYS[1], 'counted', '1')
end
local version = tonumber(redis.call('HGET', KEYS[2], 'version') or '0')
if tonumber(ARGV[2]) > version then
  version = tonumber(ARGV[2])
  redis.call('HSET', KEYS[2], 'version', ARGV[2])
end
local now = redis.call('HMGET', KEYS[1], 'steps', 'other_steps')
return {epoch, tonumber(now[1] or '0') + tonumber(now[2] or '0'), version}
