-- The beginning of every document script. scripts.py puts the definition of DOCUMENTS before it: the key of the
-- owner's or a conversation's documents.
--
-- DOCUMENTS  zset  kind NUL key NUL version:updated_at:data, every score 0, so ordered by kind and key

-- Return the member of a kind and key, `kind NUL key NUL`, and its version, 0 if it is missing.
local function find_document(place)
  local member = redis.call('ZRANGEBYLEX', DOCUMENTS, '[' .. place, '(' .. string.sub(place, 1, -2) .. '\1', 'LIMIT', 0, 1)[1]
  if not member then return nil, 0 end
  return member, tonumber(string.match(member, '^(%d+):', #place + 1))
end

local function store(place, version, updated_at, data)
  local before = find_document(place)
  if before then redis.call('ZREM', DOCUMENTS, before) end
  redis.call('ZADD', DOCUMENTS, 0, place .. string.format('%.0f', version) .. ':' .. updated_at .. ':' .. data)
end
