-- One step through a sorted set or a hash. A walk from cursor 0 to cursor 0 meets everything that stays.
-- KEYS[1] what to walk through; ARGV: ZSCAN or HSCAN, cursor, about how many

return redis.call(ARGV[1], KEYS[1], ARGV[2], 'COUNT', ARGV[3])
