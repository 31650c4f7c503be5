-- Bind a session to something else, if it is still bound to what the caller saw.
-- KEYS[1] sessions; ARGV: name, what was seen or '', what it becomes or '' for nothing

if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then return 0 end
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
end
return 1
