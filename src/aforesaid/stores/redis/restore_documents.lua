-- Keep documents exactly as they are given.
-- ARGV: now, then for each: kind and key, version, updated_at, data

for at = 2, #ARGV, 4 do
  keep(ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3])
end
settle()
return {'done'}
