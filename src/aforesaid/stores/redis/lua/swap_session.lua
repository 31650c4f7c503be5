-- Replace a session's binding if it is unchanged.
-- KEYS[1] sessions; ARGV: name, expected binding or '', new binding or '' for none

if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then return 0 end
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
end
return 1
