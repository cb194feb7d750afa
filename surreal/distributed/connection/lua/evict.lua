-- One step of the owner of a stream: renew its lease, grant credit, set the bound, remove the oldest chunks.
--
-- KEYS  1 stream  2 meta (hash)  3 lease  4 credit   5... blocks of the chunks to remove
-- ARGV  1 token of the owner     2 lease, ms (0: give it up)
--       3 epoch to use if the shard has none
--       4 env steps the limiter lets in, in total, or ''      5 life of that credit, ms
--       6 bound of the stream, bytes                          7 samples drawn so far
--       8 env steps to add if this shard was never counted up (after Redis was emptied)
--       9 env steps of the run's other shards
--      10 epoch in which the chunks to remove were stored: in another one, their names may be those of new chunks
--      11 mode of the stream, fixed by its first owner      12 number of marks
--      13 token of a holder whose lease is void, '' for none
--       then for each mark: entry id, which of the chunk's steps were consumed (of the epoch in 10, as the chunks)
--       then for each block: entry id, own steps, accounted bytes
-- Returns {status, epoch, env steps, live steps, live bytes, removed chunks, samples stored before,
-- own steps of the largest chunk that was refused for lack of credit}; status is
--   'ok', 'held' (epoch: the token of the other owner, env steps: ms left of it), 'mode' (epoch: the mode that the stream has).
--
-- Any agent may write to meta. Impossible values are replaced: env steps that are not a count, or more than 2^30 ahead
-- of what the owner knows, by what it knows; other counts by 0; a mode or an epoch that no process writes by the owner's.
-- Another mode while the owner holds the stream was not written by an owner, and is replaced as well.
--
-- PERSIST on a hash that never expires does nothing, but it is a write: after one, Redis lets a script continue at maxmemory.
local function count(value, most)
  local number = tonumber(value or '0')
  return number and number >= 0 and number <= most and number % 1 == 0 and number or nil
end

redis.call('PERSIST', KEYS[2])
local holder = redis.call('GET', KEYS[3])
if holder and holder ~= ARGV[1] and holder ~= ARGV[13] then
  return {'held', holder, redis.call('PTTL', KEYS[3]), 0, 0, 0, 0, 0}
end
local mode = redis.call('HGET', KEYS[2], 'mode')
local is_mode = mode == 'window' or mode == 'consume'
if is_mode and mode ~= ARGV[11] and holder ~= ARGV[1] then
  return {'mode', mode, 0, 0, 0, 0, 0, 0}
end
if tonumber(ARGV[2]) > 0 then
  redis.call('SET', KEYS[3], ARGV[1], 'PX', ARGV[2])
else
  redis.call('UNLINK', KEYS[3])
end

local removed, steps, bytes = 0, 0, 0
local arg = 14 + 2 * tonumber(ARGV[12])
if #ARGV > 13 and redis.call('HGET', KEYS[2], 'epoch') == ARGV[10] then
  for mark = 14, arg - 2, 2 do
    redis.call('HSET', KEYS[2], 'done:' .. ARGV[mark], ARGV[mark + 1])
  end
  for key = 5, #KEYS do
    redis.call('UNLINK', KEYS[key])
    if ARGV[11] == 'consume' then
      redis.call('HDEL', KEYS[2], 'done:' .. ARGV[arg])
    end
    if redis.call('XDEL', KEYS[1], ARGV[arg]) == 1 then
      removed = removed + 1
      steps = steps + tonumber(ARGV[arg + 1])
      bytes = bytes + tonumber(ARGV[arg + 2])
    end
    arg = arg + 3
  end
end

local meta = redis.call('HMGET', KEYS[2], 'epoch', 'counted', 'samples', 'refused_steps', 'steps', 'live_steps', 'live_bytes')
local epoch = meta[1]
if not epoch or #epoch > 64 or string.find(epoch, '%W') or epoch == '' then
  epoch = ARGV[3]
end
local known = tonumber(ARGV[8])
local all = count(meta[5], 2 ^ 53)
if not all or all > known + 2 ^ 30 then
  all = known
elseif not meta[2] then
  all = all + known
end
local live_steps = math.max((count(meta[6], 2 ^ 53) or 0) - steps, 0)
local live_bytes = math.max((count(meta[7], 2 * tonumber(ARGV[6])) or 0) - bytes, 0)
local function text(number)
  return string.format('%.0f', number)
end
redis.call('HSET', KEYS[2], 'epoch', epoch, 'mode', ARGV[11], 'counted', '1', 'steps', text(all),
  'live_steps', text(live_steps), 'live_bytes', text(live_bytes), 'max_bytes', ARGV[6], 'other_steps', ARGV[9])
if ARGV[7] ~= '' then
  redis.call('HSET', KEYS[2], 'samples', ARGV[7])
end
if ARGV[4] ~= '' then
  redis.call('SET', KEYS[4], ARGV[4], 'PX', ARGV[5])
end
return {'ok', epoch, all, live_steps, live_bytes, removed, count(meta[3], 2 ^ 53) or 0, count(meta[4], 2 ^ 22) or 0}
