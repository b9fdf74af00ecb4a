-- The member takes part; with the last one the request enters its queues, at the first one's place.
if not (record('members', id) or {})[member] then
  write('members', id, { [member] = process })
  write('request', id, { joined = num(r.joined + 1) })
  if r.joined == r.members then
    write('request', id, { state = 'queued' })
    rules.enqueue(id, r)
    request_event('queued', r, {})
    rules.call_for(r)
  else
    hint('run:' .. run, 'look ' .. id)
  end
else
  write('members', id, { [member] = process })
end
if not rules.has_yielded(id, member) then
  due('part|' .. id .. '|' .. member, pool + (r.state == 'held' and r.lease_ms or r.wait_ms))
end
