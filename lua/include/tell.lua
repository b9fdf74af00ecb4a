-- What leaves a script beside its reply: deadlines, which change at once; hints on channels, and events, which wait for `flush`:
-- a caller without the right to tell must not leave a change half made.
local raw, now, pool       -- raw TIME in ms, the same as text, and pool time in ms; set by `begin`
local news = {}

local function hint(channel, message) news[#news + 1] = { n = 3, 'PUBLISH', PREFIX .. 'ch:' .. channel, message } end

local function due(what, at) redis.call('ZADD', DEADLINES, at, what) end

local function undue(...) redis.call('ZREM', DEADLINES, ...) end

-- Every transition is an event. Facts are names and values; what is empty is left out.
local function event(kind, ...)
  local entry = { 'XADD', STREAM, 'MAXLEN', '~', EVENTS, '*', 'type', kind, 't', now, ... }
  local n = 10
  for i = n + 1, n + select('#', ...), 2 do
    local value = entry[i + 1]
    if value and value ~= '' then
      entry[n + 1], entry[n + 2] = entry[i], value
      n = n + 2
    end
  end
  entry.n = n
  news[#news + 1] = entry
end

local function request_event(kind, r, ...)
  event(kind, 'run', r.run, 'job', r.job, 'lane', r.lane, 'k', r.k, 'phase', r.phase, 'slices', r.slices, ...)
end
