-- Count the conversation's data, expired or not.
-- Returns its birth or '', the number of messages, the number of documents of each kind, the names of its sessions.

local record = read_record()
return {record and record[AT.birth] or '', count_entries(KEYS[2]), count_kinds(KEYS[5]), redis.call('SMEMBERS', KEYS[4])}
