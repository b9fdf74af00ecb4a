-- The end of a request.
function rules.release(s, id, why)
  local S = record('slice', s)
  if not S or S.request ~= id then return end
  write('slice', s, { state = 'free', request = false, since = now })
  touched[s] = 0
  if S.nodes then redis.call('DEL', key('ready', s)) end
  if why then tell_nodes(S, 'revoke ' .. s) end
end

local function leave(id, r, outcome)
  if r.state == 'queued' then rules.dequeue(id, r) end
  if r.state == 'gathering' then redis.call('SREM', key('gathering'), id) end
  for _, s in ipairs(words(r.slices)) do touched[s] = 0; rules.release(s, id, outcome ~= 'yielded') end
end

function rules.finish(id, outcome, reason)
  local r, timers = record('request', id), { 'gather|' .. id, 'switch|' .. id, 'later|' .. id }
  if meta.keeping then rules.unkeep(id) end
  leave(id, r, outcome)
  for _, member in ipairs(words(r.joined)) do timers[#timers + 1] = 'part|' .. id .. '|' .. member end
  undue(unpack(timers))
  write('request', id, { state = 'ended', outcome = outcome, reason = reason or false, ended = now })
  write('run', r.run, { open = without((record('run', r.run) or {}).open, id) })
  lives[key('request', id)] = REMEMBER
  if outcome ~= 'yielded' then hint('run:' .. r.run, 'lost ' .. id) end
  request_event('ended', r, 'outcome', outcome, 'reason', reason, r.held and 'held_ms' or 'waited_ms',
    num(raw - (r.held or r.asked)))
end
