-- The entry that holds a message id.
-- ARGV: now, the message id
-- Returns 'missing', or 'done' with what the log keeps of it, or ''.

if not alive(ARGV[1]) then return {'missing'} end
local position = redis.call('HGET', KEYS[3], ARGV[2])
if not position then return {'done', ''} end
return {'done', redis.call('ZRANGEBYLEX', KEYS[2], '[' .. position, '(' .. position .. ';', 'LIMIT', 0, 1)[1] or ''}
