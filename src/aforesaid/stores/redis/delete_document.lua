-- Remove a document.
-- ARGV: now, kind and key, version that must be or ''
-- Returns 'done' or 'conflict', with the version that was there, 0 for none.

local now, place, expected = unpack(ARGV, 1, 3)
local member, version = kept(place)
local was = string.format('%.0f', version)
if member and expected ~= '' and tonumber(expected) ~= version then return {'conflict', was} end
if member then redis.call('ZREM', DOCUMENTS, member) end
return {'done', was}
