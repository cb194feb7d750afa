-- Store rows of a DurableReplay, once.
--
-- KEYS  1 stream  2 meta (hash)
-- ARGV  1 writer  2 number of these rows at the writer  3 rows  4 capacity, rows, or 0
--       5 '1' if the oldest rows make room  6 version  7 group of the readers  8 their columns
--       9 the rows, packed
-- Returns 'ok', 'duplicate' (the writer has stored this number before), 'full', or the columns of the rows that are
-- stored, if they differ.
local step = 'step:' .. ARGV[1]
local last = tonumber(redis.call('HGET', KEYS[2], step) or '')
if last and tonumber(ARGV[2]) <= last then
  return 'duplicate'
end

local columns = redis.call('HGET', KEYS[2], 'columns')
if columns and columns ~= ARGV[8] then
  return columns
end

local rows = tonumber(redis.call('HGET', KEYS[2], 'rows') or '0') + tonumber(ARGV[3])
local capacity = tonumber(ARGV[4])
while capacity > 0 and rows > capacity do
  local oldest = ARGV[5] == '1' and redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
  if not oldest then
    return 'full'
  end
  local used = 'used:' .. oldest[1]
  rows = rows - (tonumber(oldest[2][2]) - tonumber(redis.call('HGET', KEYS[2], used) or '0'))
  redis.call('XDEL', KEYS[1], oldest[1])
  redis.call('HDEL', KEYS[2], used)
end

-- Made by the first rows: a reader could not make it while Redis has no memory.
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('XGROUP', 'CREATE', KEYS[1], ARGV[7], '0', 'MKSTREAM')
end
redis.call('XADD', KEYS[1], '*', 'n', ARGV[3], 'v', ARGV[6], 'd', ARGV[9])
redis.call('HSET', KEYS[2], 'rows', rows, step, ARGV[2], 'columns', ARGV[8])
redis.call('HINCRBY', KEYS[2], 'put', ARGV[3])
return 'ok'
