-- Change fields of the record and increase the revision by one.
-- ARGV: now, expected revision or '', channel, id, lifetime in milliseconds or '' or 'same', changes
-- The changes are alternating fields and values; false clears a field.

local now, expected, channel, id, duration = unpack(ARGV, 1, 5)
local record = unexpired_record(now)
if not record then return {'missing'} end
local revision = record[AT.revision]
if expected ~= '' and expected ~= revision then return {'conflict', revision} end
local changes = cmsgpack.unpack(ARGV[6])
for place = 1, #changes, 2 do
  if changes[place + 1] then
    redis.call('HSET', KEYS[1], changes[place], changes[place + 1])
  else
    redis.call('HDEL', KEYS[1], changes[place])
  end
end
revision = string.format('%.0f', tonumber(revision) + 1)
redis.call('HSET', KEYS[1], 'revision', revision, 'updated_at', now)
if duration ~= 'same' then expire_in(duration) end
notify(channel, id, revision)
return {'done', read_record()}
