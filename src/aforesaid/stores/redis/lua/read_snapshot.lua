-- Read what a context needs.
-- KEYS[6], if on the same server: the owner's documents.
-- ARGV: now, number of first entries, number of last entries, the version that the caller has cached or '';
--   start, end and number of the documents
-- Returns 'missing'; 'same' with the documents, if the conversation has this version; or 'done' with the documents, the
--   version, the record, the head of the log or '', the first entries, and the last entries, newest first. The first
--   entries are left out if the last ones are the whole log.

local birth, expires_at, revision, rewritten, head =
  unpack(redis.call('HMGET', KEYS[1], 'birth', 'expires_at', 'revision', 'rewritten', 'head'), 1, 5)
if not birth or (expires_at ~= '' and expires_at <= ARGV[1]) then return {'missing'} end
local documents = KEYS[6] and redis.call('ZRANGEBYLEX', KEYS[6], ARGV[5], ARGV[6], 'LIMIT', 0, ARGV[7]) or {}
-- The number of messages detects a log that was lost or changed by another program.
local version = birth .. ':' .. revision .. ':' .. (rewritten or '') .. ':' .. redis.call('ZCARD', KEYS[2])
if version == ARGV[4] then return {'same', documents} end

local front, tail = tonumber(ARGV[2]), tonumber(ARGV[3])
local first = {}
local last = tail > 0 and redis.call('ZREVRANGE', KEYS[2], 0, tail - 1) or {}
if front > 0 and #last == tail then first = redis.call('ZRANGE', KEYS[2], 0, front - 1) end
return {'done', documents, version, read_record(), head or '', first, last}
