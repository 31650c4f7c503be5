-- Store documents unchanged.
-- ARGV: now, then for each: kind and key, version, updated_at, data

for at = 2, #ARGV, 4 do
  store(ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3])
end
match_lifetime()
return {'done'}
