-- Remove the conversation; with a moment given, only if it has expired by then, or what is left without a record.
-- ARGV: now or '', channel, id, revision that must be or ''
-- Returns 'kept' when nothing was done, 'moved' with the revision,
--   or 'done' with its birth, the names of its sessions, and how many messages and documents of each kind it had.

local now, channel, id, expected = unpack(ARGV, 1, 4)
local record = read_record()
if record and expected ~= '' and expected ~= record[AT.revision] then return {'moved', record[AT.revision]} end
if record and now ~= '' and not is_expired(record, now) then return {'kept'} end
local names = redis.call('SMEMBERS', KEYS[4])
local messages, documents = count_entries(KEYS[2]), count_kinds(KEYS[5])
forget()
if record then tell(channel, id, '') end
return {'done', record and record[AT.birth] or '', names, messages, documents}
