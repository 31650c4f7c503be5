-- Keep a new, empty conversation, in the place of one that has expired.
-- ARGV: now, lifetime in milliseconds or '', channel, id, session to note or '', fields and values
-- Returns 'exists', or 'done' with the birth and the names of what was there before.

local now, duration, channel, id, name = unpack(ARGV, 1, 5)
if alive(now) then return {'exists'} end
local before = read_record()
local names = redis.call('SMEMBERS', KEYS[4])
forget()
redis.call('HSET', KEYS[1], unpack(cmsgpack.unpack(ARGV[6])))
if name ~= '' then redis.call('SADD', KEYS[4], name) end
live_for(duration)
tell(channel, id, redis.call('HGET', KEYS[1], 'revision'))
return {'done', before and before[AT.birth] or '', names}
