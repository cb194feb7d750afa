-- Publish one version of a policy's parameters, atomically. Called by TorchBroadcaster.
--
-- KEYS  1 params hash, 2 lease, 3 .. 2+n the n uploaded parts of this publication,
--       3+n ..           the parts of the publication before the last one, removed here
-- ARGV  1 token of the broadcaster      2 length of its lease, ms    3 version proposed: the new one is larger
--       4 epoch, kept if there is none  5 id of this publication     6 message
--       7 n, 0 when the data is in 8    8 data                       9 notice channel: it is told version, id and n
--      10 version that this broadcaster published last, 0 if none: then it may follow another one
--      11 id of the publication whose parts stand in KEYS for removal, "" if none
--      12 token of a holder whose lease is void, "" for none
--
-- Reply {status, number, text}:
--   ok        version, epoch    published; or had been before, when a retried call comes twice
--   held      ms left, token    another broadcaster holds the lease
--   fenced    version, epoch    the lease had run out and another broadcaster published since. A stored version
--                               below our last one means that Redis lost data: we publish again
--   missing   index             an uploaded part has expired: upload again
--   previous  parts, id         KEYS must hold these parts for removal: call again with them
--
-- A stored version that no learner reaches (2^30 and above) is not continued: versions start over, under a new epoch.
-- All checks come before the first write. UNLINK comes first among the writes: after it a script may also write to a
-- Redis that is full, and replacing parameters takes no more room than they have.

local params, lease = KEYS[1], KEYS[2]
local token, parts = ARGV[1], tonumber(ARGV[7])

local holder = redis.call('GET', lease)
if holder and holder ~= token and holder ~= ARGV[12] then
  return {'held', redis.call('PTTL', lease), holder}
end

local stored = redis.call('HMGET', params, 'version', 'epoch', 'id', 'parts', 'publisher', 'previous', 'previous_parts')
local version = tonumber(stored[1]) or 0
local epoch = stored[2] or ARGV[4]
if not (version >= 0 and version <= 2 ^ 30) then
  version, epoch = 0, ARGV[4]
end
if stored[3] == ARGV[5] then
  for i = 1, parts do  -- the retried call may have stored them again, to expire
    redis.call('PERSIST', KEYS[2 + i])
  end
  return {'ok', version, epoch}
end
local own = tonumber(ARGV[10])
if stored[5] and stored[5] ~= token and own > 0 and version >= own then
  return {'fenced', version, epoch}
end
for i = 1, parts do
  if redis.call('EXISTS', KEYS[2 + i]) == 0 then
    return {'missing', i - 1, ''}
  end
end
local previous, previous_parts = stored[6] or '', tonumber(stored[7]) or 0
if previous_parts > 0 and previous ~= ARGV[11] then
  return {'previous', previous_parts, previous}
end

redis.call('UNLINK', params)
for i = 3 + parts, #KEYS do
  redis.call('UNLINK', KEYS[i])
end
for i = 1, parts do
  redis.call('PERSIST', KEYS[2 + i])
end
local previous_version = string.format('%.0f', version)
version = math.max(version, tonumber(ARGV[3])) + 1
local text = string.format('%.0f', version)
redis.call('HSET', params, 'version', text, 'epoch', epoch, 'id', ARGV[5], 'message', ARGV[6], 'parts', ARGV[7],
  'data', ARGV[8], 'publisher', token, 'previous', stored[3] or '', 'previous_parts', stored[4] or '0', 'previous_version', previous_version,
  'published_s', redis.call('TIME')[1])
redis.call('SET', lease, token, 'PX', ARGV[2])
redis.call('PUBLISH', ARGV[9], text .. ' ' .. ARGV[5] .. ' ' .. ARGV[7])
return {'ok', version, epoch}
