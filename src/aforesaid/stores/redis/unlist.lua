-- Take a conversation out of its owner's index, and let go the sessions that are bound to it.
-- KEYS[1] index, KEYS[2] sessions; ARGV: id, what the sessions are bound to, names of sessions
-- Returns how many conversations are left, and how many sessions went. With the last conversation, whatever
-- sessions there are lead nowhere.

redis.call('ZREM', KEYS[1], ARGV[1])
local gone = 0
for place = 3, #ARGV do
  if redis.call('HGET', KEYS[2], ARGV[place]) == ARGV[2] then gone = gone + redis.call('HDEL', KEYS[2], ARGV[place]) end
end
local left = redis.call('ZCARD', KEYS[1])
if left == 0 then
  gone = gone + redis.call('HLEN', KEYS[2])
  redis.call('UNLINK', KEYS[2])
end
return {left, gone}
