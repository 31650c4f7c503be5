-- Remove the conversation; with a moment given, only if it has expired by then.
-- ARGV: now or '', channel, id
-- Returns 'kept' or 'gone' when nothing was done, or 'done' with its birth and the names of its sessions.

local now, channel, id = unpack(ARGV, 1, 3)
local record = read_record()
if now ~= '' and not record then return {'gone'} end
if now ~= '' and not is_expired(record, now) then return {'kept'} end
local names = redis.call('SMEMBERS', KEYS[4])
forget()
if record then tell(channel, id, '') end
return {'done', record and record[AT.birth] or '', names}
