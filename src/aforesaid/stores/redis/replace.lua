-- Other words in the place of an entry, if it is still what the caller saw.
-- ARGV: now, revision that must be or '', channel, id, the entry as it was seen, its position, when it was stored, body,
--   whether it says the same as before, so that what is derived stays, or '', and the head of the log or ''
-- Returns 'missing', 'moved' with the revision, 'changed', or 'done' with the new revision.

local now, expected, channel, id, seen, position, stored_at, body, same, head = unpack(ARGV, 1, 10)
local record = alive(now)
if not record then return {'missing'} end
if expected ~= '' and expected ~= record[AT.revision] then return {'moved', record[AT.revision]} end
if not redis.call('ZSCORE', KEYS[2], seen) then return {'changed'} end
local revision = string.format('%.0f', tonumber(record[AT.revision]) + 1)
-- Added first: a key that is empty for a moment would lose its lifetime.
redis.call('ZADD', KEYS[2], 0, position .. ':' .. revision .. ':' .. stored_at .. ':' .. body)
redis.call('ZREM', KEYS[2], seen)
if same == '' then redis.call('UNLINK', KEYS[5]) end
redis.call('HSET', KEYS[1], 'revision', revision, 'updated_at', now)
if head ~= '' then redis.call('HSET', KEYS[1], 'head', head) end
tell(channel, id, revision)
return {'done', revision}
