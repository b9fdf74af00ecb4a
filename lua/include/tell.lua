-- What leaves a script beside its reply: events, hints on channels, and deadlines.
local raw, pool            -- raw TIME and pool time of this script, in ms; set by `begin`

local function event(kind, facts)
  local entry = { key('events'), 'MAXLEN', '~', EVENTS, '*', 'type', kind, 't', num(raw) }
  for name, value in pairs(facts) do
    if value and value ~= '' then entry[#entry + 1] = name; entry[#entry + 1] = value end
  end
  redis.call('XADD', unpack(entry))
end

local function request_event(kind, r, facts)
  facts.run, facts.job, facts.lane, facts.k, facts.phase = r.run, r.job, r.lane, r.k, r.phase
  facts.slices = facts.slices or r.slices
  event(kind, facts)
end

local function hint(channel, message)
  redis.call('PUBLISH', PREFIX .. 'ch:' .. channel, message)
end

local function due(what, at)
  redis.call('ZADD', key('deadlines'), num(at), what)
end

local function undue(...)
  redis.call('ZREM', key('deadlines'), ...)
end
