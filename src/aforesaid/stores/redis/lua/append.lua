-- Store one turn completely or not at all: `conversations.stamp_for` and `conversations.extended` on the server.
-- ARGV: now, now plus the clock skew, 'append' or 'rewrite', expected revision or '', '1' to only compare, channel, id,
--   new head of the log or '', '1' and the expected head or '', messages
-- A message is: its id or '', its time or '', role, body, and the position of an equal message with this id that the
--   caller has compared, or ''
-- Returns 'missing', 'conflict' with the revision,
--   'partial' if there is a head and only some of the messages are new,
--   'known' with the record and the stored messages with these ids, which the caller must compare,
--   'done' with the record, the time and the sequence of the first new message, and the known positions.

local now, ahead, mode, expected, only_compare, channel, id, head, seen = unpack(ARGV, 1, 9)
local messages = cmsgpack.unpack(ARGV[10])
local record = unexpired_record(now)
if not record then return {'missing'} end
local rewriting = mode == 'rewrite'
local is_conflict = expected ~= '' and expected ~= record[AT.revision]
if seen ~= '' and string.sub(seen, 2) ~= (redis.call('HGET', KEYS[1], 'head') or '') then is_conflict = true end
if rewriting and is_conflict then return {'conflict', record[AT.revision]} end

local known, fresh, unsure = {}, #messages, only_compare == '1'
if not rewriting then
  for place, message in ipairs(messages) do
    local position = message[1] ~= '' and redis.call('HGET', KEYS[3], message[1])
    if position then
      known[place] = position
      fresh = fresh - 1
      unsure = unsure or position ~= message[5]
    end
  end
end

if unsure then
  local stored = {}
  for place = 1, #messages do
    local position = known[place]
    stored[place] = position
      and redis.call('ZRANGEBYLEX', KEYS[2], '[' .. position, '(' .. position .. ';', 'LIMIT', 0, 1)[1] or ''
  end
  return {'known', record, stored}
end
if head ~= '' and fresh > 0 and fresh < #messages then return {'partial'} end
if is_conflict and (fresh > 0 or #messages == 0) then return {'conflict', record[AT.revision]} end

local stamp, first = now, tonumber(record[AT.next_sequence])
local positions = {}
if fresh > 0 or rewriting then
  local last_at, last_from = record[AT.last_message_at], record[AT.last_message_from]
  local unread, count = tonumber(record[AT.unread_count]), tonumber(record[AT.message_count])
  if rewriting then
    redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[5])
    redis.call('HDEL', KEYS[1], 'head')
    last_at, last_from, unread, count = '', '', 0, 0
  end
  if now < last_at and last_at <= ahead then stamp = last_at end

  local revision = string.format('%.0f', tonumber(record[AT.revision]) + 1)
  local sequence = first
  for place, message in ipairs(messages) do
    if not known[place] then
      local at = message[2] ~= '' and message[2] or stamp
      local position = at .. string.format('%016.0f', sequence)
      redis.call('ZADD', KEYS[2], 0, position .. ':' .. revision .. ':' .. now .. ':' .. message[4])
      if message[1] ~= '' then redis.call('HSET', KEYS[3], message[1], position) end
      if at >= last_at then last_at, last_from = at, message[3] end
      sequence = sequence + 1
    end
  end

  local ttl = record[AT.ttl]
  local expires_at = expiry(now, ttl)
  record[AT.revision] = revision
  record[AT.next_sequence] = string.format('%.0f', sequence)
  record[AT.message_count] = string.format('%.0f', count + fresh)
  record[AT.unread_count] = string.format('%.0f', unread + fresh)
  record[AT.last_message_at] = last_at
  record[AT.last_message_from] = last_from
  record[AT.updated_at] = now
  record[AT.expires_at] = expires_at
  redis.call('HSET', KEYS[1],
    'revision', revision,
    'next_sequence', record[AT.next_sequence],
    'message_count', record[AT.message_count],
    'unread_count', record[AT.unread_count],
    'last_message_at', last_at,
    'last_message_from', last_from,
    'updated_at', now,
    'expires_at', expires_at)
  if head ~= '' then redis.call('HSET', KEYS[1], 'head', head) end
  expire_in(expires_at == '' and '' or milliseconds(ttl))
  if KEYS[6] then
    redis.call('ZADD', KEYS[6], score(last_at ~= '' and last_at or record[AT.created_at]), id)
  end
  notify(channel, id, revision)
end
for place = 1, #messages do positions[place] = known[place] or '' end
return {'done', record, stamp, string.format('%.0f', first), positions}
