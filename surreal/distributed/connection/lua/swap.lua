-- Replace a value by another, if it is still what the caller has seen. Called for the configuration of a run.
--
-- KEYS  1 key
-- ARGV  1 the value that was seen, "" for none, 2 the new one
--
-- Reply: 1 if it was replaced, 0 if it was another meanwhile.

if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then
  return 0
end
redis.call('UNLINK', KEYS[1])
redis.call('SET', KEYS[1], ARGV[2])
return 1
