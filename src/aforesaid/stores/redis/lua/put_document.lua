-- Store a document, replacing an existing one.
-- ARGV: now, kind and key, expected version or '', data
-- Returns 'conflict' or 'done', with the current version.

local now, place, expected, data = unpack(ARGV, 1, 4)
local _, version = find_document(place)
if expected ~= '' and tonumber(expected) ~= version then
  return {'conflict', string.format('%.0f', version)}
end
store(place, version + 1, now, data)
match_lifetime()
return {'done', string.format('%.0f', version + 1)}
