-- Correct the score of a conversation in the index, unless it has changed since it was read.
-- KEYS[1] index; ARGV: id, the score that was read, the correct score

if redis.call('ZSCORE', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
return 1
