-- Replace the head of the log if it is unchanged.
-- ARGV: now, expected head or '', new head
-- Returns 'missing', or 'done' with 1 or 0.

local now, seen, head = unpack(ARGV, 1, 3)
if not unexpired_record(now) then return {'missing'} end
if (redis.call('HGET', KEYS[1], 'head') or '') ~= seen then return {'done', 0} end
redis.call('HSET', KEYS[1], 'head', head)
note_rewritten()
return {'done', 1}
