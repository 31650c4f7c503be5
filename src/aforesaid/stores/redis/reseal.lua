-- Another stored form of messages, in their places. Nothing else moves.
-- ARGV: now, messages; a message is: what stands at the head of its member (position, revision, moment of
--       storing), and its body
-- Returns 'missing', or 'done' with the number of members that were exchanged.

local now, messages = ARGV[1], cmsgpack.unpack(ARGV[2])
if not alive(now) then return {'missing'} end
local exchanged = 0
for _, message in ipairs(messages) do
  local head, body = message[1], message[2]
  -- A member's head ends with a colon, and a semicolon is the character after it.
  local upper = string.sub(head, 1, -2) .. ';'
  local found = redis.call('ZRANGEBYLEX', KEYS[2], '[' .. head, '(' .. upper, 'LIMIT', 0, 1)[1]
  if found then
    -- Added first: a key that is empty for a moment would lose its lifetime.
    redis.call('ZADD', KEYS[2], 0, head .. body)
    if found ~= head .. body then redis.call('ZREM', KEYS[2], found) end
    exchanged = exchanged + 1
  end
end
return {'done', exchanged}
