-- Return the log member of a message id.
-- ARGV: now, the message id
-- Returns 'missing', or 'done' with the member or ''.

if not unexpired_record(ARGV[1]) then return {'missing'} end
local position = redis.call('HGET', KEYS[3], ARGV[2])
if not position then return {'done', ''} end
return {'done', redis.call('ZRANGEBYLEX', KEYS[2], '[' .. position, '(' .. position .. ';', 'LIMIT', 0, 1)[1] or ''}
