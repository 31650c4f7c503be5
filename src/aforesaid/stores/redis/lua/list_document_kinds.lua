-- Return the kinds of documents, with one lookup for each.
-- ARGV: now

local kinds, first = {}, '-'
while true do
  local member = redis.call('ZRANGEBYLEX', DOCUMENTS, first, '+', 'LIMIT', 0, 1)[1]
  if not member then return {'done', kinds} end
  kinds[#kinds + 1] = string.match(member, '^[^%z]+')
  first = '[' .. kinds[#kinds] .. '\1'
end
