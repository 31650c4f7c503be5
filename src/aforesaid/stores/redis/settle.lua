-- Put right what the index says of a conversation, unless somebody else changed it meanwhile.
-- KEYS[1] index; ARGV: id, the score that was read, the score that is right

if redis.call('ZSCORE', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
return 1
