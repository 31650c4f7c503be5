-- Return the conversations that changed after a mark.
-- KEYS[1] changes: conversation ids by the number of their last change; the member '' has the last number, '-' the number
--   before the first. Deleted conversations stay until `remove_from_index` removes the key.
-- ARGV: both numbers as of the mark, '' for a missing key
-- Returns both numbers, '' for a missing key, and the ids; no ids if the mark belongs to another series.

local series, last = redis.call('ZSCORE', KEYS[1], '-') or '', redis.call('ZSCORE', KEYS[1], '') or ''
if series ~= ARGV[1] then return {series, last} end
if last == '' then return {'', '', {}} end
if tonumber(ARGV[2]) > tonumber(last) then return {series, last} end
return {series, last, redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. ARGV[2], '+inf')}
