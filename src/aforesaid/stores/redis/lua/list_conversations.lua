-- Return the most active conversations at or below a score: alternating ids and scores.
-- KEYS[1] index; ARGV: the score, how many

return redis.call('ZREVRANGEBYSCORE', KEYS[1], ARGV[1], '-inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
