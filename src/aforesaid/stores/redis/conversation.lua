-- What every script about one conversation begins with. Above it stand, written by scripts.py:
-- FIELDS, the names of the record's fields; AT, the place of each; LATEST, the last moment that there is.
--
-- KEYS[1] record    hash     what is known about the conversation, by field
-- KEYS[2] log       zset   position:revision:stored_at:body, every score 0, so ordered by its text
-- KEYS[3] ids       hash   message id -> position
-- KEYS[4] names     set    sessions that were bound to the conversation
-- KEYS[5] documents zset  what was derived from the conversation: see documents.lua
--
-- A moment is text: microseconds since 1970 plus 10^17, in twenty digits. Text order is time order, and
-- no number ever passes through a double, which is exact only as far as 2^53. A lifetime is text
-- likewise, without the 10^17. The empty text is none.

local function read_record()
  local record = redis.call('HMGET', KEYS[1], unpack(FIELDS))
  return record[AT.birth] and record
end

local function is_expired(record, now)
  local expires_at = record[AT.expires_at]
  return expires_at ~= '' and expires_at <= now
end

local function alive(now)
  local record = read_record()
  return record and not is_expired(record, now) and record
end

-- The sum of two texts of twenty digits, by halves that a double holds exactly.
local function plus(a, b)
  local low = tonumber(string.sub(a, 11)) + tonumber(string.sub(b, 11))
  local high = tonumber(string.sub(a, 1, 10)) + tonumber(string.sub(b, 1, 10))
  if low >= 1e10 then
    low, high = low - 1e10, high + 1
  end
  return string.format('%010.0f%010.0f', high, low)
end

-- When a conversation that was active now expires; none when that is past the end of time.
local function expiry(now, ttl)
  local expires_at = ttl == '' and '' or plus(now, ttl)
  return expires_at > LATEST and '' or expires_at
end

-- A lifetime in whole milliseconds, rounded up: the server never forgets before the clock does.
local function milliseconds(ttl)
  return (string.gsub(string.sub(plus(ttl, '00000000000000000999'), 1, 17), '^0+', ''))
end

-- The server's own expiry, a backstop, on every key of the conversation.
local function live_for(duration)
  for place = 1, 5 do
    if duration == '' then
      redis.call('PERSIST', KEYS[place])
    else
      redis.call('PEXPIRE', KEYS[place], duration)
    end
  end
end

local function forget()
  redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5])
end

-- A moment as the score of an index: microseconds since 1970.
local function score(moment)
  local high, low = tonumber(string.sub(moment, 1, 10)), tonumber(string.sub(moment, 11))
  return string.format('%.0f', (high - 1e7) * 1e10 + low)
end

-- Telling others must not undo what was stored, so a refusal is let pass.
local function tell(channel, id, revision)
  redis.pcall('PUBLISH', channel, id .. ':' .. revision)
end
