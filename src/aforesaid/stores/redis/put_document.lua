-- Keep a document in the place of what is there.
-- ARGV: now, kind and key, version that must be or '', data
-- Returns 'conflict' or 'done', with the version that is there now.

local now, place, expected, data = unpack(ARGV, 1, 4)
local _, version = kept(place)
if expected ~= '' and tonumber(expected) ~= version then
  return {'conflict', string.format('%.0f', version)}
end
keep(place, version + 1, now, data)
settle()
return {'done', string.format('%.0f', version + 1)}
