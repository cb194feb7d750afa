-- Remove the rows of a batch from a DurableReplay, and store the reader's state with that, all or nothing.
--
-- KEYS  1 stream  2 meta (hash)
-- ARGV  1 group  2 reader  3 number of the batch at the reader  4 '1' if there is a state  5 state  6 stale rows
--       then for each entry: id, rows used before, rows used now, rows of the entry
-- Returns 'ok' (also if this batch was committed before), or the id of an entry that another reader has.
local batch = 'batch:' .. ARGV[2]
if redis.call('HGET', KEYS[2], batch) == ARGV[3] then
  return 'ok'
end
for i = 7, #ARGV, 4 do
  -- Another reader may also have had the entry meanwhile, and used a part of it.
  local used = redis.call('HGET', KEYS[2], 'used:' .. ARGV[i]) or '0'
  local is_mine = #redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1, ARGV[2]) > 0
  if not is_mine or used ~= ARGV[i + 1] then
    return ARGV[i]
  end
end

local taken, removed = 0, 0
for i = 7, #ARGV, 4 do
  local used = tonumber(ARGV[i + 2])
  local now = used - tonumber(ARGV[i + 1])
  taken = taken + now
  -- An entry that was evicted meanwhile is no longer among the rows.
  if #redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i]) > 0 then
    removed = removed + now
  end
  if used < tonumber(ARGV[i + 3]) then
    redis.call('HSET', KEYS[2], 'used:' .. ARGV[i], used)
  else
    redis.call('XACK', KEYS[1], ARGV[1], ARGV[i])
    redis.call('XDEL', KEYS[1], ARGV[i])
    redis.call('HDEL', KEYS[2], 'used:' .. ARGV[i])
  end
end
redis.call('HINCRBY', KEYS[2], 'rows', 0 - removed)
redis.call('HINCRBY', KEYS[2], 'consumed', taken - tonumber(ARGV[6]))
redis.call('HINCRBY', KEYS[2], 'stale', ARGV[6])
redis.call('HSET', KEYS[2], batch, ARGV[3])
if ARGV[4] == '1' then
  redis.call('HSET', KEYS[2], 'state:' .. ARGV[2], ARGV[5])
end
return 'ok'
