-- Bring the parameter servers of a group together: each offers states to resume from, and gets all offers.
--
-- KEYS  1 state of the gradients (hash)   2 offers (hash)
-- ARGV  1 name of a new formation   2 '1' if one must begin   3 formation that the server was in, or ''
--       4 number of the server      5 its offer    6 formation that it offers it to: the one since whose beginning its
--       queue was emptied, or ''    7 number of servers
-- Returns {formation, offers in the servers' order}; the offers are '' while one is missing. Until all are there, no
-- gradient is queued: so all queues are empty at once, and are the same from then on.
local name = redis.call('HGET', KEYS[2], 'name')
if not name or ARGV[2] == '1' or name == ARGV[3] then
  name = ARGV[1]
  redis.call('UNLINK', KEYS[2])
  redis.call('HSET', KEYS[2], 'name', name)
  redis.call('HSET', KEYS[1], 'formation', name, 'forming', '1')
end
if name ~= ARGV[6] then
  return {name, ''}
end
redis.call('HSET', KEYS[2], ARGV[4], ARGV[5])
local offers = {}
for i = 1, tonumber(ARGV[7]) do
  offers[i] = redis.call('HGET', KEYS[2], tostring(i - 1))
  if not offers[i] then
    return {name, ''}
  end
end
redis.call('HDEL', KEYS[1], 'forming')
return {name, offers}
