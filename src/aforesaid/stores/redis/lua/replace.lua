-- Replace an entry if it is unchanged since the caller read it.
-- ARGV: now, expected revision or '', channel, id, the member that was read, its position, its storing time, body,
--   '1' to keep derived documents or '', the new head of the log or '', '1' and the expected head or ''
-- Returns 'missing', 'conflict' with the revision, 'changed', or 'done' with the new revision.

local now, expected, channel, id, member, position, stored_at, body, same, head, seen = unpack(ARGV, 1, 11)
local record = unexpired_record(now)
if not record then return {'missing'} end
if expected ~= '' and expected ~= record[AT.revision] then return {'conflict', record[AT.revision]} end
if seen ~= '' and string.sub(seen, 2) ~= (redis.call('HGET', KEYS[1], 'head') or '') then
  return {'conflict', record[AT.revision]}
end
if not redis.call('ZSCORE', KEYS[2], member) then return {'changed'} end
local revision = string.format('%.0f', tonumber(record[AT.revision]) + 1)
-- Add first: a key that becomes empty is deleted and loses its expiry.
redis.call('ZADD', KEYS[2], 0, position .. ':' .. revision .. ':' .. stored_at .. ':' .. body)
redis.call('ZREM', KEYS[2], member)
if same == '' then
  -- Open turns and an application's state are not derived from the log.
  redis.call('ZREMRANGEBYLEX', KEYS[5], '-', '(app/state/')
  redis.call('ZREMRANGEBYLEX', KEYS[5], '[app/state0', '(open_turns\0')
  redis.call('ZREMRANGEBYLEX', KEYS[5], '[open_turns\1', '+')
end
redis.call('HSET', KEYS[1], 'revision', revision, 'updated_at', now)
if head ~= '' then redis.call('HSET', KEYS[1], 'head', head) end
notify(channel, id, revision)
return {'done', revision}
