-- Raise the score of a conversation to at least this activity, before and after a turn, on a cluster.
-- KEYS[1] index; ARGV: score, id. Returns the resulting score; false if it is not listed.

if not redis.call('ZSCORE', KEYS[1], ARGV[2]) then return false end
redis.call('ZADD', KEYS[1], 'GT', ARGV[1], ARGV[2])
return redis.call('ZSCORE', KEYS[1], ARGV[2])
