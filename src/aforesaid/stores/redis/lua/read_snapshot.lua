-- Read what a context needs.
-- KEYS[6], if on the same server: the owner's documents.
-- ARGV: now, number of first entries, number of last entries; start, end and number of the documents
-- Returns 'missing', or 'done' with the record, the head of the log or '', the first entries, the last entries, newest
--   first, and the documents. The first entries are left out if the last ones are the whole log.

local record = unexpired_record(ARGV[1])
if not record then return {'missing'} end
local front, tail = tonumber(ARGV[2]), tonumber(ARGV[3])
local first, documents = {}, {}
local last = tail > 0 and redis.call('ZREVRANGE', KEYS[2], 0, tail - 1) or {}
if front > 0 and #last == tail then first = redis.call('ZRANGE', KEYS[2], 0, front - 1) end
if KEYS[6] then documents = redis.call('ZRANGEBYLEX', KEYS[6], ARGV[4], ARGV[5], 'LIMIT', 0, ARGV[6]) end
return {'done', record, redis.call('HGET', KEYS[1], 'head') or '', first, last, documents}
