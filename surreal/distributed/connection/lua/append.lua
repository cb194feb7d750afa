-- Store one chunk: its block, its stream entry, its count, all or nothing.
--
-- KEYS  1 stream  2 meta (hash)  3 block of this chunk  4 last sequence number of this sender  5 credit of the limiter
--       6 the block, as it was stored just before: it is renamed, or removed when the chunk is refused
-- ARGV  1 epoch to use if the shard has none   2 chunk id      3 sequence number     4 own steps
--       5 accounted bytes                      6 contract id   7 contract, or ''     8 '1' if the limiter applies
--       9 bound in bytes if no owner set one  10 life of the sequence key, s   11 head
-- Returns {status, epoch, env steps of the run (of other shards as the owner told last), detail}; status is one of
--   'ok', 'duplicate', 'full' (at the byte bound), 'credit' (the limiter gives none), 'contract' (send it along),
--   'mismatch' (detail: the stored contract).
-- An impossible count is taken as 0 here; the owner corrects it.
local function count(value, default)
  local number = tonumber(value or '')
  return number and number >= 0 and number <= 2 ^ 53 and number % 1 == 0 and number or default
end

local meta = redis.call('HMGET', KEYS[2], 'epoch', 'steps', 'live_bytes', 'max_bytes', 'contract_id', 'other_steps',
  'refused_steps', 'live_steps', 'chunks')
local epoch, steps, others = meta[1], count(meta[2], 0), count(meta[6], 0)
local bytes, bound = tonumber(ARGV[5]), count(meta[4], tonumber(ARGV[9]))
local live_bytes = count(meta[3], 0)

local function answer(status, detail)
  redis.call('UNLINK', KEYS[6])
  return {status, epoch or '', steps + others, detail or ''}
end

local last = count(redis.call('GET', KEYS[4]), nil)
-- A number far above is not from this sender: few of its chunks are under way at a time.
if last and tonumber(ARGV[3]) <= last and last < tonumber(ARGV[3]) + 10000 then
  redis.call('EXPIRE', KEYS[4], ARGV[10])
  return answer('duplicate')
end
if redis.call('EXISTS', KEYS[3]) == 1 then
  return answer('duplicate')  -- its sender slept, or a clock jumped, and the sequence number has expired
end
if meta[5] and meta[5] ~= ARGV[6] then
  if ARGV[7] == '' then
    return answer('contract')
  end
  local stored = redis.call('HGET', KEYS[2], 'contract')
  if stored ~= ARGV[7] and redis.call('XLEN', KEYS[1]) > 0 then
    return answer('mismatch', stored)
  end
elseif not meta[5] and ARGV[7] == '' then
  return answer('contract')
end
if bound > 0 and live_bytes + bytes > bound then
  return answer('full')
end
if ARGV[8] == '1' then
  local credit = count(redis.call('GET', KEYS[5]), nil)
  if not credit or steps + tonumber(ARGV[4]) > credit then
    local refusal = answer('credit', credit and tostring(credit))
    -- The owner divides the credit so that the largest chunk fits into a shard's part.
    if tonumber(ARGV[4]) > count(meta[7], 0) then
      redis.call('HSET', KEYS[2], 'refused_steps', ARGV[4])
    end
    return refusal
  end
end

if redis.call('EXISTS', KEYS[6]) == 0 then
  return answer('full')  -- at maxmemory it was not taken
end
-- A write that takes memory comes first: at maxmemory it fails before anything is changed.
if not epoch then
  epoch = ARGV[1]
  redis.call('HSET', KEYS[2], 'epoch', epoch)
end
if meta[5] ~= ARGV[6] then
  redis.call('HSET', KEYS[2], 'contract_id', ARGV[6], 'contract', ARGV[7])
end
redis.call('XADD', KEYS[1], '*', 'id', ARGV[2], 'head', ARGV[11])
redis.call('RENAME', KEYS[6], KEYS[3])
redis.call('PERSIST', KEYS[3])
redis.call('SET', KEYS[4], ARGV[3], 'EX', ARGV[10])
local own = tonumber(ARGV[4])
local function text(number)
  return string.format('%.0f', number)
end
redis.call('HSET', KEYS[2], 'live_bytes', text(live_bytes + bytes), 'live_steps', text(count(meta[8], 0) + own),
  'chunks', text(count(meta[9], 0) + 1), 'steps', text(steps + own))
return {'ok', epoch, steps + own + others, ''}
