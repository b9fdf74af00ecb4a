-- The end of a request, and its way back into the queue.
local REMEMBERED = 900000  -- ms that an ended request is remembered for late repetitions

function rules.release(s, id, why)
  local S = record('slice', s)
  if not S or S.request ~= id then return end
  write('slice', s, { state = 'free', request = false, since = num(raw) })
  redis.call('DEL', key('ready', s))
  touched[s] = 0
  for _, node in ipairs(why and words(S.nodes) or {}) do hint('node:' .. node, 'revoke ' .. s) end
end

function rules.finish(id, outcome, reason)
  local r = record('request', id)
  local was, run = r.state, record('run', r.run) or {}
  write('request', id, { state = 'ended', outcome = outcome, reason = reason or false, ended = num(raw) })
  for _, s in ipairs(words(r.slices)) do
    if was == 'queued' then redis.call('ZREM', key('queue', s), id); touched[s] = 0 end
    if was ~= 'queued' then rules.release(s, id, outcome ~= 'yielded') end
  end
  for _, member in ipairs(rules.members(id)) do undue('part|' .. id .. '|' .. member) end
  redis.call('ZREM', key('deadlines'), 'gather|' .. id, 'switch|' .. id)
  write('run', r.run, { open = without(run.open, id) })
  redis.call('PEXPIRE', key('request', id), REMEMBERED)
  redis.call('PEXPIRE', key('members', id), REMEMBERED)
  if was == 'held' then redis.call('ZADD', key('served'), num(raw), r.run) end
  if outcome ~= 'yielded' then hint('run:' .. r.run, 'lost ' .. id) end
  request_event('ended', r, { outcome = outcome, reason = reason, held_ms = r.held and num(raw - r.held) })
end
