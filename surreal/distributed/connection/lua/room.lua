-- Check whether a chunk would be stored now, so that a waiting sender need not send it to find out.
--
-- KEYS  1 meta (hash)  2 credit of the limiter
-- ARGV  1 own steps  2 accounted bytes  3 bound in bytes if no owner set one  4 '1' if the limiter applies
-- Returns 'ok', 'full' or 'credit', as the append script would.
-- An impossible count is taken as 0, as in the append script.
local function count(value, default)
  local number = tonumber(value or '')
  return number and number >= 0 and number <= 2 ^ 53 and number % 1 == 0 and number or default
end

local meta = redis.call('HMGET', KEYS[1], 'steps', 'live_bytes', 'max_bytes', 'refused_steps')
local own, bound, refused = tonumber(ARGV[1]), count(meta[3], tonumber(ARGV[3])), count(meta[4], 0)
if bound > 0 and count(meta[2], 0) + tonumber(ARGV[2]) > bound then
  return 'full'
end
local status = 'ok'
if ARGV[4] == '1' then
  local credit = count(redis.call('GET', KEYS[2]), nil)
  if not credit or count(meta[1], 0) + own > credit then
    status = 'credit'
    -- The owner divides the credit so that the largest chunk fits into a shard's part.
    refused = math.max(refused, own)
  end
end
-- A write that takes memory: at maxmemory it fails, as storing the chunk would.
redis.call('HSET', KEYS[1], 'refused_steps', string.format('%.0f', refused))
return status
