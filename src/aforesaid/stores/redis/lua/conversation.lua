-- The beginning of every conversation script. scripts.py puts constants before it:
-- FIELDS, the names of the record's fields; AT, the index of each; LATEST, the latest representable time.
--
-- KEYS[1] record     hash   the record by field
-- KEYS[2] log        zset   position:revision:stored_at:body, every score 0, so ordered by text
-- KEYS[3] ids        hash   message id -> position
-- KEYS[4] names      set    sessions that were bound to the conversation
-- KEYS[5] documents  zset   documents derived from the conversation: see documents.lua
--
-- A time is text: microseconds since 1970 plus 10^17, in twenty digits. Text order is time order, and no number is
-- converted to a double, which is exact only up to 2^53. A lifetime is text too, without the 10^17. Empty text means none.

local function read_record()
  local record = redis.call('HMGET', KEYS[1], unpack(FIELDS))
  return record[AT.birth] and record
end

local function is_expired(record, now)
  local expires_at = record[AT.expires_at]
  return expires_at ~= '' and expires_at <= now
end

local function unexpired_record(now)
  local record = read_record()
  return record and not is_expired(record, now) and record
end

-- Add two texts of twenty digits, in halves that a double represents exactly.
local function add(a, b)
  local low = tonumber(string.sub(a, 11)) + tonumber(string.sub(b, 11))
  local high = tonumber(string.sub(a, 1, 10)) + tonumber(string.sub(b, 1, 10))
  if low >= 1e10 then
    low, high = low - 1e10, high + 1
  end
  return string.format('%010.0f%010.0f', high, low)
end

-- Return the expiry of a conversation that is active now; none if it exceeds the latest time.
local function expiry(now, ttl)
  local expires_at = ttl == '' and '' or add(now, ttl)
  return expires_at > LATEST and '' or expires_at
end

-- Return a lifetime in milliseconds, rounded up: the server must not expire keys before the store does.
local function milliseconds(ttl)
  return (string.gsub(string.sub(add(ttl, '00000000000000000999'), 1, 17), '^0+', ''))
end

-- Set the server-side expiry, a safety net, on every key of the conversation. One with branches must outlive its lifetime
-- as long as they need it, so the sweep alone removes it.
local function expire_in(duration)
  if redis.call('HEXISTS', KEYS[1], 'branched') == 1 then duration = '' end
  for place = 1, 5 do
    if duration == '' then
      redis.call('PERSIST', KEYS[place])
    else
      redis.call('PEXPIRE', KEYS[place], duration)
    end
  end
end

-- Count a change of stored data that leaves the revision as it is, so that cached snapshots are read again.
local function note_rewritten()
  redis.call('HINCRBY', KEYS[1], 'rewritten', 1)
end

local function delete_keys()
  redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5])
end

-- Return a time as an index score: microseconds since 1970.
local function score(moment)
  local high, low = tonumber(string.sub(moment, 1, 10)), tonumber(string.sub(moment, 11))
  return string.format('%.0f', (high - 1e7) * 1e10 + low)
end

-- Number the change of a conversation; see `read_changes.lua`. A new series of numbers begins at a number of its own.
local function number_change(id, revision)
  local number = redis.call('ZINCRBY', KEYS[7], 1, '')
  if number == '1' then
    local birth = redis.call('HGET', KEYS[1], 'birth') or ''
    local series = tonumber(string.sub(redis.sha1hex(birth .. id .. revision .. ARGV[1]), 1, 12), 16)
    redis.call('ZADD', KEYS[7], string.format('%.0f', series), '-')
    number = redis.call('ZINCRBY', KEYS[7], string.format('%.0f', series), '')
  end
  redis.call('ZADD', KEYS[7], number, id)
end

-- KEYS[6] and KEYS[7], if on the same server: the owner's index and changes.
-- A failed notification must not undo the write, so errors are ignored.
local function notify(channel, id, revision)
  if KEYS[7] then number_change(id, revision) end
  redis.pcall('PUBLISH', channel, id .. ':' .. revision)
end
