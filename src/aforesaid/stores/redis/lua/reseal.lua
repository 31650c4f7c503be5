-- Replace the stored form of messages.
-- ARGV: now, messages; a message is: the head of its member (position, revision, storing time), and its body
-- Returns 'missing', or 'done' with the number of replaced members.

local now, messages = ARGV[1], cmsgpack.unpack(ARGV[2])
if not unexpired_record(now) then return {'missing'} end
local exchanged = 0
for _, message in ipairs(messages) do
  local head, body = message[1], message[2]
  -- A member's head ends with a colon; the next character is a semicolon.
  local upper = string.sub(head, 1, -2) .. ';'
  local found = redis.call('ZRANGEBYLEX', KEYS[2], '[' .. head, '(' .. upper, 'LIMIT', 0, 1)[1]
  if found then
    -- Add first: a key that becomes empty is deleted and loses its expiry.
    redis.call('ZADD', KEYS[2], 0, head .. body)
    if found ~= head .. body then redis.call('ZREM', KEYS[2], found) end
    exchanged = exchanged + 1
  end
end
if exchanged > 0 then note_rewritten() end
return {'done', exchanged}
