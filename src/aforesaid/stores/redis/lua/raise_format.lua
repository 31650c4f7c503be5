-- Raise the version of the data, unless another process has raised it further.

local found = tonumber(redis.call('GET', KEYS[1]) or 0)
if found < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1]) end
