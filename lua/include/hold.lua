-- Every member that still has a part is heard of, or has `ms` from now.
function rules.extend(id, r, ms)
  for _, member in ipairs(words(r.joined)) do
    if not rules.has_yielded(r, member) then due('part|' .. id .. '|' .. member, pool + ms) end
  end
end

-- The last READY of the last slice begins the turn. A member has its lease once it acquires or renews as a holder: until then it
-- has no more time than a waiter, since it may be one that was stopped before it could learn of its turn.
function rules.try_hold(id, r)
  local live = rules.live(r)
  for _, s in ipairs(live) do
    local S = record('slice', s)
    if not readable(S) or S.nodes and redis.call('SCARD', key('ready', s)) < #words(S.nodes) then return end
  end
  local fences = {}
  for i, s in ipairs(live) do
    write('slice', s, { state = 'held', since = now })
    fences[i] = r['fence:' .. s]
  end
  write('request', id, { state = 'held', held = now })
  rules.extend(id, r, math.min(r.wait_ms, r.lease_ms))
  if live[2] then undue('switch|' .. id) end
  if id ~= rules.just_asked or r.members ~= '1' then hint('run:' .. r.run, 'held ' .. id) end
  request_event('held', r, 'waited_ms', num(raw - r.asked), 'fences', table.concat(fences, ' '))
end
