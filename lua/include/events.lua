-- Every transition is an event. Facts are names and values; what is empty is left out.
local function event(kind, ...)
  local entry, facts = { key('events'), 'MAXLEN', '~', EVENTS, '*', 'type', kind, 't', num(raw) }, { ... }
  local n = #entry
  for i = 1, select('#', ...), 2 do
    if facts[i + 1] and facts[i + 1] ~= '' then
      entry[n + 1], entry[n + 2] = facts[i], facts[i + 1]
      n = n + 2
    end
  end
  redis.call('XADD', unpack(entry))
end

local function request_event(kind, r, ...)
  event(kind, 'run', r.run, 'job', r.job, 'lane', r.lane, 'k', r.k, 'phase', r.phase, 'slices', r.slices, ...)
end
