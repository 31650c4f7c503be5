-- Store a record and entries of its log unchanged.
-- ARGV: now, the record's expiry or '', server-side expiry in milliseconds or '', channel, id, birth of a new record,
--   its activity as a score, fields and values, the absent optional fields, entries, head of the log or '',
--   '1' and the expected head or '', expected revision or '', first sequence of a new record
-- An entry is: its sequence, its position, its message id or '', its member
-- Returns 'conflict' with the revision if the log has another head, 'taken' with a message id of another entry,
--   or 'done' with the birth and the names of a replaced expired conversation.

local now, expires_at, duration, channel, id, birth, activity = unpack(ARGV, 1, 7)
local fields, optional = cmsgpack.unpack(ARGV[8]), cmsgpack.unpack(ARGV[9])
local entries, head, seen, expected, first_own = cmsgpack.unpack(ARGV[10]), ARGV[11], ARGV[12], ARGV[13], ARGV[14]
local record = read_record()
local gone, names = '', {}
local over = record and is_expired(record, now) and (expires_at == '' or expires_at > now)
if over then
  gone, names = record[AT.birth], redis.call('SMEMBERS', KEYS[4])
  record = nil
end
local revision = record and record[AT.revision] or '-1'
if expected ~= '' and expected ~= revision then return {'conflict', revision} end
local stored_head = record and redis.call('HGET', KEYS[1], 'head') or ''
if seen ~= '' and string.sub(seen, 2) ~= stored_head then
  return {'conflict', record and record[AT.revision] or '0'}
end
local next_sequence = record and tonumber(record[AT.next_sequence]) or tonumber(first_own)

-- Sequences that may be taken: few or none, unless a part is restored again.
local doubtful, any = {}, false
for _, entry in ipairs(entries) do
  if record and entry[1] < next_sequence then
    doubtful[entry[1]], any = true, true
  end
end
local taken, first = {}, 0
while any do
  local members = redis.call('ZRANGE', KEYS[2], first, first + 999)
  for _, member in ipairs(members) do
    local sequence = tonumber(string.sub(member, 21, 36))
    if doubtful[sequence] then taken[sequence] = true end
  end
  first = first + #members
  any = #members > 0
end

if record then
  for _, entry in ipairs(entries) do
    if not taken[entry[1]] and entry[3] ~= '' and redis.call('HEXISTS', KEYS[3], entry[3]) == 1 then
      return {'taken', entry[3]}
    end
  end
end

if not record then delete_keys() end
redis.call('HSET', KEYS[1], 'birth', record and record[AT.birth] or birth, unpack(fields))
if #optional > 0 then redis.call('HDEL', KEYS[1], unpack(optional)) end
for _, entry in ipairs(entries) do
  if not taken[entry[1]] then
    redis.call('ZADD', KEYS[2], 0, entry[4])
    if entry[3] ~= '' then redis.call('HSET', KEYS[3], entry[3], entry[2]) end
    if entry[1] >= next_sequence then next_sequence = entry[1] + 1 end
  end
end
redis.call('HSET', KEYS[1], 'next_sequence', string.format('%.0f', next_sequence))
note_rewritten()
if head ~= '' then redis.call('HSET', KEYS[1], 'head', head) end
expire_in(duration)
if KEYS[6] then redis.call('ZADD', KEYS[6], activity, id) end
notify(channel, id, redis.call('HGET', KEYS[1], 'revision'))
return {'done', gone, names}
