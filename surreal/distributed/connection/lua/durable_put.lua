-- Store rows of a DurableReplay, once.
--
-- KEYS  1 stream  2 meta (hash)  3 the rows, as they were stored just before: they are renamed, or removed  4 their name
-- ARGV  1 writer  2 number of these rows at the writer  3 rows  4 capacity, rows, or 0
--       5 '1' if the oldest rows make room  6 version  7 group of the readers  8 their columns
-- Returns 'ok', 'duplicate' (the writer has stored this number before), 'full', 'gone' (the rows have expired: store
-- them again), or the columns of the rows that are stored, if they differ.
local stream, meta, step = KEYS[1], KEYS[2], 'step:' .. ARGV[1]

local function refuse(answer)
  redis.call('UNLINK', KEYS[3])
  return answer
end

local last = tonumber(redis.call('HGET', meta, step) or '')
if last and tonumber(ARGV[2]) <= last then
  return refuse('duplicate')
end
local columns = redis.call('HGET', meta, 'columns')
if columns and columns ~= ARGV[8] then
  return refuse(columns)
end
if redis.call('EXISTS', KEYS[3]) == 0 then
  return 'gone'
end

local rows = tonumber(redis.call('HGET', meta, 'rows') or '0') + tonumber(ARGV[3])
local capacity = tonumber(ARGV[4])
while capacity > 0 and rows > capacity do
  local oldest = ARGV[5] == '1' and redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
  if not oldest then
    return refuse('full')
  end
  local used = 'used:' .. oldest[1]
  rows = rows - (tonumber(oldest[2][2]) - tonumber(redis.call('HGET', meta, used) or '0'))
  redis.call('UNLINK', oldest[2][6])
  redis.call('XDEL', stream, oldest[1])
  redis.call('HDEL', meta, used)
end

-- Made by the first rows: a reader could not make it while Redis has no memory.
if redis.call('EXISTS', stream) == 0 then
  redis.call('XGROUP', 'CREATE', stream, ARGV[7], '0', 'MKSTREAM')
end
redis.call('RENAME', KEYS[3], KEYS[4])
redis.call('PERSIST', KEYS[4])
redis.call('XADD', stream, '*', 'n', ARGV[3], 'v', ARGV[6], 'key', KEYS[4])
redis.call('HSET', meta, 'rows', rows, step, ARGV[2], 'columns', ARGV[8])
redis.call('HINCRBY', meta, 'put', ARGV[3])
return 'ok'
