-- Take, renew or give back the name of a process in a run. Called by a process before it takes part, and while it does.
--
-- KEYS  1 claim
-- ARGV  1 token of the process, 2 length of the claim in ms, 0 to give it back, 3 token of a holder whose claim is
--       void, "" for none
--
-- Reply {token, ms}: "" if it is done, else the token of the holder and how long its claim lasts.

local claim = KEYS[1]
local token, length_ms = ARGV[1], tonumber(ARGV[2])

local holder = redis.call('GET', claim)
if holder and holder ~= token and holder ~= ARGV[3] then
  return {holder, redis.call('PTTL', claim)}
end
-- UNLINK first: a script that has written may also write to a Redis that is full.
redis.call('UNLINK', claim)
if length_ms > 0 then
  redis.call('SET', claim, token, 'PX', length_ms)
end
return {'', 0}
