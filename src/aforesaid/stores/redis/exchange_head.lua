-- Another head of the log, if this is still the one that is there. Nothing else moves.
-- ARGV: now, the head that was seen or '', the head that it becomes
-- Returns 'missing', or 'done' with 1 or 0.

local now, seen, head = unpack(ARGV, 1, 3)
if not alive(now) then return {'missing'} end
if (redis.call('HGET', KEYS[1], 'head') or '') ~= seen then return {'done', 0} end
redis.call('HSET', KEYS[1], 'head', head)
return {'done', 1}
