-- Remove the rows of a batch from a DurableReplay, and store the reader's state with that, all or nothing.
--
-- KEYS  1 stream  2 meta (hash)
-- ARGV  1 group  2 reader  3 number of the batch at the reader  4 '1' if there is a state  5 state  6 stale rows
--       7 entries of the batch, then for each: id, rows used before, rows used now, rows of the entry
--       then ids of further entries that the reader has, whose lease is renewed
-- Returns 'ok' (also if this batch was committed before), or the id of an entry that another reader has.
local stream, meta, group, reader = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local batch, last = 'batch:' .. reader, 7 + 4 * tonumber(ARGV[7])

local function is_mine(id)
  return #redis.call('XPENDING', stream, group, id, id, 1, reader) > 0
end

if redis.call('HGET', meta, batch) == ARGV[3] then
  return 'ok'
end
local exists = {}
for i = 8, last, 4 do
  -- An entry may have been evicted meanwhile, or another reader had it, too, and used a part of it.
  exists[i] = redis.call('XRANGE', stream, ARGV[i], ARGV[i])[1]
  local used = redis.call('HGET', meta, 'used:' .. ARGV[i]) or '0'
  if not is_mine(ARGV[i]) or (exists[i] and used ~= ARGV[i + 1]) then
    return ARGV[i]
  end
end

-- A script may write to a Redis without memory if its first write needs none.
redis.call('HDEL', meta, batch)
local taken, removed = 0, 0
for i = 8, last, 4 do
  local used = tonumber(ARGV[i + 2])
  local now = used - tonumber(ARGV[i + 1])
  taken = taken + now
  removed = removed + (exists[i] and now or 0)
  if exists[i] and used < tonumber(ARGV[i + 3]) then
    redis.call('HSET', meta, 'used:' .. ARGV[i], used)
  elseif used == tonumber(ARGV[i + 3]) then
    redis.call('XACK', stream, group, ARGV[i])
    if exists[i] then
      redis.call('UNLINK', exists[i][2][6])
      redis.call('XDEL', stream, ARGV[i])
    end
    redis.call('HDEL', meta, 'used:' .. ARGV[i])
  end
end
redis.call('HINCRBY', meta, 'rows', 0 - removed)
redis.call('HINCRBY', meta, 'consumed', taken - tonumber(ARGV[6]))
redis.call('HINCRBY', meta, 'stale', ARGV[6])
redis.call('HSET', meta, batch, ARGV[3])
if ARGV[4] == '1' then
  redis.call('HSET', meta, 'state:' .. reader, ARGV[5])
end
for i = last + 1, #ARGV do
  if is_mine(ARGV[i]) then
    redis.call('XCLAIM', stream, group, reader, 0, ARGV[i], 'JUSTID')
  end
end
return 'ok'
