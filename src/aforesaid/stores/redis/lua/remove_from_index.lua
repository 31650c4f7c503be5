-- Remove a conversation from its owner's index, and the sessions bound to it.
-- KEYS[1] index, KEYS[2] sessions, KEYS[3] changes; ARGV: id, binding of the sessions, names of sessions
-- Returns the number of remaining conversations and of removed sessions. After the last conversation, all remaining
-- sessions are removed.

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
-- Begin again when most of the changes are removals: readers then read all records once.
if left == 0 or redis.call('ZCARD', KEYS[3]) > 2 * left + 1000 then redis.call('UNLINK', KEYS[3]) end
return {left, gone}
