-- Renew or give back the lease of a policy. Called by TorchBroadcaster between its publications.
--
-- KEYS  1 params hash, 2 lease
-- ARGV  1 token of the broadcaster   2 length of its lease in ms, 0 to give it back   3 version that it published last
--
-- Reply {status, number, text}:
--   ok        version, epoch    the caller holds the lease (or gave it back), and these are our parameters, or older
--                               ones, where Redis lost data
--   held      ms left, token    another broadcaster holds the lease
--   fenced    version, epoch    another broadcaster published since; the lease is left alone
--   empty                       there are no parameters: Redis was emptied

local params, lease = KEYS[1], KEYS[2]
local token, lease_ms = ARGV[1], tonumber(ARGV[2])

local holder = redis.call('GET', lease)
if holder and holder ~= token then
  return {'held', redis.call('PTTL', lease), holder}
end
local stored = redis.call('HMGET', params, 'version', 'epoch', 'publisher')
local version = tonumber(stored[1]) or 0
if stored[3] and stored[3] ~= token and version >= tonumber(ARGV[3]) then
  return {'fenced', version, stored[2] or ''}
end
-- UNLINK first: a script that has written may also write to a Redis that is full.
redis.call('UNLINK', lease)
if lease_ms > 0 then
  redis.call('SET', lease, token, 'PX', lease_ms)
end
if not stored[1] then
  return {'empty', 0, ''}
end
return {'ok', version, stored[2]}
