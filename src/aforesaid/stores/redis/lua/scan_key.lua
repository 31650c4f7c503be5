-- One step of a scan. A complete scan returns every element that exists throughout.
-- KEYS[1] a sorted set or a hash; ARGV: ZSCAN or HSCAN, cursor, approximate count

return redis.call(ARGV[1], KEYS[1], ARGV[2], 'COUNT', ARGV[3])
