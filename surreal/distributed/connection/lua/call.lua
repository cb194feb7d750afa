-- Ask for a method of another process, once, however often this script is run.
-- KEYS: 1 requests (stream)   2 mark of this request
-- ARGV: 1 id   2 request   3 ms that the caller waits   4 most requests that may wait
-- Returns 1, or 0 if too many wait.
if redis.call('EXISTS', KEYS[2]) == 1 then
  return 1
end
if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[4]) then
  return 0
end
redis.call('SET', KEYS[2], '1', 'PX', tonumber(ARGV[3]) + 60000)
redis.call('XADD', KEYS[1], '*', 'id', ARGV[1], 'request', ARGV[2], 'timeout_ms', ARGV[3])
return 1
