-- How much there is of the conversation, expired or not.
-- Returns its birth or '', how many messages, how many documents of each kind, the names of sessions.

local record = read_record()
return {record and record[AT.birth] or '', count_entries(KEYS[2]), count_kinds(KEYS[5]), redis.call('SMEMBERS', KEYS[4])}
