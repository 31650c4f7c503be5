-- Delete a document.
-- ARGV: now, kind and key, expected version or ''
-- Returns 'done' or 'conflict', with the version before, 0 for none.

local now, place, expected = unpack(ARGV, 1, 3)
local member, version = find_document(place)
local was = string.format('%.0f', version)
if member and expected ~= '' and tonumber(expected) ~= version then return {'conflict', was} end
if member then redis.call('ZREM', DOCUMENTS, member) end
return {'done', was}
