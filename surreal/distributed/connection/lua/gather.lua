-- Exchange values among the parameter servers of a group: store the caller's value, and read all present ones.
--
-- KEYS  1 state of the gradients (hash)   2 this exchange (hash)   3 the one before the last, which all have read
-- ARGV  1 formation   2 number of the server   3 value   4 life of the exchange, s   5 number of servers
-- Returns the values in the servers' order, none while one is missing; or 'changed': the group has another formation.
if redis.call('HGET', KEYS[1], 'formation') ~= ARGV[1] then
  return 'changed'
end
redis.call('UNLINK', KEYS[3])
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
redis.call('EXPIRE', KEYS[2], ARGV[4])
local servers = tonumber(ARGV[5])
if redis.call('HLEN', KEYS[2]) < servers then
  return {}
end
local values = {}
for i = 1, servers do
  values[i] = redis.call('HGET', KEYS[2], tostring(i - 1))
end
return values
