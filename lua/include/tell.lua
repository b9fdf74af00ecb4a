-- What leaves a script beside its reply: hints on channels, deadlines, and events.
local raw, now, pool       -- raw TIME in ms, the same as text, and pool time in ms; set by `begin`

local function hint(channel, message) redis.call('PUBLISH', PREFIX .. 'ch:' .. channel, message) end

local function due(what, at) redis.call('ZADD', DEADLINES, at, what) end

local function undue(...) redis.call('ZREM', DEADLINES, ...) end

-- Every transition is an event. Facts are names and values; what is empty is left out.
local function event(kind, ...)
  local entry = { STREAM, 'MAXLEN', '~', EVENTS, '*', 'type', kind, 't', now, ... }
  local n = 9
  for i = n + 1, n + select('#', ...), 2 do
    local value = entry[i + 1]
    if value and value ~= '' then
      entry[n + 1], entry[n + 2] = entry[i], value
      n = n + 2
    end
  end
  local id = redis.pcall('XADD', unpack(entry, 1, n))
  if type(id) ~= 'table' then return end
  -- Nobody can ever write to such a key again, and nothing may fail for it.
  if string.find(id.err, 'last possible ID') or string.find(id.err, 'WRONGTYPE') then redis.call('DEL', STREAM) end
  redis.call('XADD', unpack(entry, 1, n))
end

local function request_event(kind, r, ...)
  event(kind, 'run', r.run, 'job', r.job, 'lane', r.lane, 'k', r.k, 'phase', r.phase, 'slices', r.slices, ...)
end
