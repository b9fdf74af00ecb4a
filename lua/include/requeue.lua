-- A queued request's place, and the way back to it from a switch that could not be finished.
function rules.enqueue(id, r)
  local head_start = r.priority * (tonumber(record('meta').head_start_ms) or 30000)
  for _, s in ipairs(words(r.slices)) do
    redis.call('ZADD', key('queue', s), num(r.tick - head_start * 4096), id)
    touched[s] = 0
  end
end

function rules.requeue(id, reason)
  local r = record('request', id)
  write('request', id, { state = 'queued', reason = reason or false })
  for _, s in ipairs(words(r.slices)) do rules.release(s, id, true) end
  undue('switch|' .. id)
  rules.enqueue(id, r)
  rules.extend(id, tonumber(r.wait_ms))
  hint('run:' .. r.run, 'look ' .. id)
  request_event('requeued', r, { reason = reason })
end
