-- Count an owner's documents of each kind, without those of conversations; with ARGV[1] 'remove', delete them.
-- KEYS[1] the owner's documents

local counts = count_kinds(KEYS[1])
if ARGV[1] == 'remove' then redis.call('UNLINK', KEYS[1]) end
return counts
