-- How many documents of each kind there are under a key: a kind, its number, the next kind, its number.
local function count_kinds(documents)
  local counts, first = {}, '-'
  while true do
    local member = redis.call('ZRANGEBYLEX', documents, first, '+', 'LIMIT', 0, 1)[1]
    if not member then return counts end
    local kind = string.match(member, '^[^%z]+')
    local past = kind .. '\1'
    counts[#counts + 1] = kind
    counts[#counts + 1] = redis.call('ZLEXCOUNT', documents, '[' .. kind .. '\0', '(' .. past)
    first = '[' .. past
  end
end

-- How many messages there are in a log. What somebody else put in its place has none, and can still be removed.
local function count_entries(log)
  local found = redis.pcall('ZCARD', log)
  return type(found) == 'number' and found or 0
end
