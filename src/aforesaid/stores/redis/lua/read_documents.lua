-- Return documents by kind and key.
-- ARGV: now, start, end, how many

return {'done', redis.call('ZRANGEBYLEX', DOCUMENTS, ARGV[2], ARGV[3], 'LIMIT', 0, ARGV[4])}
