-- What leaves a script beside its reply: hints on channels, and deadlines.
local raw, pool            -- raw TIME and pool time of this script, in ms; set by `begin`

local function hint(channel, message)
  redis.call('PUBLISH', PREFIX .. 'ch:' .. channel, message)
end

local function due(what, at)
  redis.call('ZADD', key('deadlines'), num(at), what)
end

local function undue(...)
  redis.call('ZREM', key('deadlines'), ...)
end
