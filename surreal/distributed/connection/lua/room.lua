-- Say whether a chunk would be stored now, so that a sender that waits need not send it to find out.
--
-- KEYS  1 meta (hash)  2 credit of the limiter
-- ARGV  1 own steps  2 accounted bytes  3 bound in bytes if no owner set one  4 '1' if the limiter applies
-- Returns 'ok', 'full' or 'credit', as the append script would.
local meta = redis.call('HMGET', KEYS[1], 'steps', 'live_bytes', 'max_bytes', 'refused_steps')
local own, bound, refused = tonumber(ARGV[1]), tonumber(meta[3] or ARGV[3]), meta[4] or '0'
if bound > 0 and tonumber(meta[2] or '0') + tonumber(ARGV[2]) > bound then
  return 'full'
end
local status = 'ok'
if ARGV[4] == '1' then
  local credit = redis.call('GET', KEYS[2])
  if not credit or tonumber(meta[1] or '0') + own > tonumber(credit) then
    status = 'credit'
    -- The owner divides the credit so that the largest chunk fits into a shard's part.
    if own > tonumber(refused) then
      refused = ARGV[1]
    end
  end
end
-- A write that takes memory: at maxmemory it fails, as storing the chunk would.
redis.call('HSET', KEYS[1], 'refused_steps', refused)
return status
