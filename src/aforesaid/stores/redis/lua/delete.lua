-- Delete the conversation; given a time, only if it has expired by then or has no record.
-- ARGV: now or '', channel, id, expected revision or ''
-- Returns 'unexpired' if nothing was deleted, 'conflict' with the revision,
--   or 'done' with its birth, the names of its sessions, and the numbers of messages and of documents of each kind.

local now, channel, id, expected = unpack(ARGV, 1, 4)
local record = read_record()
if record and expected ~= '' and expected ~= record[AT.revision] then return {'conflict', record[AT.revision]} end
if record and now ~= '' and not is_expired(record, now) then return {'unexpired'} end
local names = redis.call('SMEMBERS', KEYS[4])
local messages, documents = count_entries(KEYS[2]), count_kinds(KEYS[5])
delete_keys()
if record then notify(channel, id, '') end
return {'done', record and record[AT.birth] or '', names, messages, documents}
