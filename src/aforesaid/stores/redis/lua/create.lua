-- Store a new, empty conversation, replacing an expired one.
-- ARGV: now, lifetime in milliseconds or '', channel, id, session or '', fields and values
-- Returns 'exists', or 'done' with the birth and the names of the replaced one.

local now, duration, channel, id, name = unpack(ARGV, 1, 5)
if unexpired_record(now) then return {'exists'} end
local before = read_record()
local names = redis.call('SMEMBERS', KEYS[4])
delete_keys()
redis.call('HSET', KEYS[1], unpack(cmsgpack.unpack(ARGV[6])))
if name ~= '' then redis.call('SADD', KEYS[4], name) end
expire_in(duration)
notify(channel, id, redis.call('HGET', KEYS[1], 'revision'))
return {'done', before and before[AT.birth] or '', names}
