-- Take one gradient out of a parameter server's queue: only the server that gets 'ok' may use it.
--
-- KEYS  1 state of the gradients (hash)   2 the server's queue (stream)   3 ... the gradient's parts for this server
-- ARGV  1 id of the entry   2 token of the server   3 bytes of these parts   4 number of the server
--       5 formation of the group, or ''   6 life of the parts from now on, s
-- Returns 'ok'; 'gone', if another server took it; or 'changed': the group has another formation.
if ARGV[5] ~= '' and redis.call('HGET', KEYS[1], 'formation') ~= ARGV[5] then
  return 'changed'
end
local mark = ARGV[2] .. ' ' .. ARGV[1]
if redis.call('XDEL', KEYS[2], ARGV[1]) == 0 then
  return redis.call('HGET', KEYS[1], 'taken:' .. ARGV[4]) == mark and 'ok' or 'gone'  -- repeated, or too late
end
for i = 3, #KEYS do
  redis.call('EXPIRE', KEYS[i], ARGV[6])
end
redis.call('HINCRBY', KEYS[1], 'live_bytes', 0 - tonumber(ARGV[3]))
redis.call('HSET', KEYS[1], 'taken:' .. ARGV[4], mark)
return 'ok'
