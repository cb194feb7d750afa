-- Removes the keys that match ARGV[2], ...; ARGV[1] is the run, and KEYS[1] lists the runs.
local removed = 0
for i = 2, #ARGV do
  for _, key in ipairs(redis.call('KEYS', ARGV[i])) do
    removed = removed + redis.call('UNLINK', key)
  end
end
redis.call('HDEL', KEYS[1], ARGV[1])
return removed
