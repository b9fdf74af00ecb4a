-- The way back into the queue from a switch that could not be finished.
function rules.requeue(id, reason)
  local r = record('request', id)
  for _, s in ipairs(words(r.slices)) do rules.release(s, id, true) end
  write('request', id, { state = 'queued', reason = reason or false })
  undue('switch|' .. id)
  rules.enqueue(id, r)
  rules.extend(id, r, tonumber(r.wait_ms))
  hint('run:' .. r.run, 'look ' .. id)
  request_event('requeued', r, 'reason', reason)
end
