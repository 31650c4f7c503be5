-- Documents in the order of their kinds and keys.
-- ARGV: now, where they begin, where they end, how many

return {'done', redis.call('ZRANGEBYLEX', DOCUMENTS, ARGV[2], ARGV[3], 'LIMIT', 0, ARGV[4])}
