-- The last READY of the last slice begins the turn; the lease starts now.
function rules.try_hold(id, r)
  local live = rules.live(r)
  for _, s in ipairs(live) do
    local nodes = record('slice', s).nodes
    if nodes and redis.call('SCARD', key('ready', s)) < #words(nodes) then return end
  end
  local fences = {}
  for i, s in ipairs(live) do
    write('slice', s, { state = 'held', since = num(raw) })
    fences[i] = r['fence:' .. s]
  end
  write('request', id, { state = 'held', held = num(raw) })
  rules.extend(id, r, tonumber(r.lease_ms))
  if #live > 1 then undue('switch|' .. id) end
  if id ~= rules.just_asked or r.members ~= '1' then hint('run:' .. r.run, 'held ' .. id) end
  request_event('held', r, 'waited_ms', num(raw - r.asked), 'fences', table.concat(fences, ' '))
end
