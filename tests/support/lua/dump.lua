-- Everything that a pool has stored, in one reply: {key, type, content} for each key but the record of events.
local all = {}
for _, name in ipairs(redis.call('KEYS', ARGV[1])) do
  local kind = redis.call('TYPE', name).ok
  local content
  if kind == 'string' then content = redis.call('GET', name)
  elseif kind == 'set' then content = redis.call('SMEMBERS', name)
  elseif kind == 'zset' then content = redis.call('ZRANGE', name, 0, -1, 'WITHSCORES') end
  if content then all[#all + 1] = { name, kind, content } end
end
return all
