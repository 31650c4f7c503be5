-- What every script about documents begins with. Above it stands, written by scripts.py, where they are:
-- DOCUMENTS, the owner's or a conversation's, of which it was seen that it is there.
--
-- DOCUMENTS  zset  kind NUL key NUL version:updated_at:data, every score 0, so ordered by kind and key

-- What is kept under a kind and a key, `kind NUL key NUL`; and its version, 0 when there is none.
local function kept(place)
  local member = redis.call('ZRANGEBYLEX', DOCUMENTS, '[' .. place, '(' .. string.sub(place, 1, -2) .. '\1', 'LIMIT', 0, 1)[1]
  if not member then return nil, 0 end
  return member, tonumber(string.match(member, '^(%d+):', #place + 1))
end

local function keep(place, version, updated_at, data)
  local before = kept(place)
  if before then redis.call('ZREM', DOCUMENTS, before) end
  redis.call('ZADD', DOCUMENTS, 0, place .. string.format('%.0f', version) .. ':' .. updated_at .. ':' .. data)
end
