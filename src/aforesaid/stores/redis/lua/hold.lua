-- Keep the conversation beyond its lifetime, because a branch continues it. Expired or not, it must be there.

if not read_record() then return {'missing'} end
redis.call('HSET', KEYS[1], 'branched', '1')
expire_in('')
return {'done'}
