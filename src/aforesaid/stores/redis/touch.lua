-- Before a turn and after it, where the index is on another server: the conversation is at least this active.
-- KEYS[1] index; ARGV: score, id. Returns the score that holds then; false when it is not listed.

if not redis.call('ZSCORE', KEYS[1], ARGV[2]) then return false end
redis.call('ZADD', KEYS[1], 'GT', ARGV[1], ARGV[2])
return redis.call('ZSCORE', KEYS[1], ARGV[2])
