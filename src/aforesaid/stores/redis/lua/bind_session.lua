-- Add a session to the names of the conversation, before it is bound.
-- ARGV: now, the session
-- Returns 'missing', or 'done' with the birth of the conversation.

local record = unexpired_record(ARGV[1])
if not record then return {'missing'} end
redis.call('SADD', KEYS[4], ARGV[2])
local remaining = redis.call('PTTL', KEYS[1])
if remaining > 0 then redis.call('PEXPIRE', KEYS[4], remaining) end
return {'done', record[AT.birth]}
