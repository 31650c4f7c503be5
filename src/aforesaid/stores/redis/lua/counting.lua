-- Count the documents of each kind under a key: alternating kinds and numbers.
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

-- Count the messages of a log. A key of another type counts as empty, and can still be deleted.
local function count_entries(log)
  local found = redis.pcall('ZCARD', log)
  return type(found) == 'number' and found or 0
end
