-- Return members of the log.
-- ARGV: now, then one of
--   'page', first index, last index; 'tail', last index from the end; 'before', position, how many; 'none'

local now, which, a, b = unpack(ARGV, 1, 4)
if not unexpired_record(now) then return {'missing'} end
if which == 'page' then return {'done', redis.call('ZRANGE', KEYS[2], a, b)} end
if which == 'tail' then return {'done', redis.call('ZREVRANGE', KEYS[2], 0, a)} end
if which == 'before' then
  return {'done', redis.call('ZREVRANGEBYLEX', KEYS[2], '(' .. a, '-', 'LIMIT', 0, b)}
end
return {'done', {}}
