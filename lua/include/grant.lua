-- From queued to held.
function rules.start(id, r)
  local changes = { state = 'switching', granted = num(raw), reason = false }
  for _, s in ipairs(words(r.slices)) do
    local S = record('slice', s)
    local fence = num(math.max((tonumber(S.fence) or 0) + 1, raw * 1024))
    if S.kept then rules.unkeep_slice(s) end
    changes['fence:' .. s] = fence
    write('slice', s, { state = 'switching', request = id, fence = fence, since = num(raw) })
    redis.call('DEL', key('ready', s))
    redis.call('ZREM', key('queue', s), id)
    for _, node in ipairs(words(S.nodes)) do hint('node:' .. node, 'grant ' .. s) end
    if S.nodes and S.nodes ~= '' then request_event('switching', r, { slice = s, fence = fence }) end
  end
  write('request', id, changes)
  rules.try_hold(id, r)
end

-- The last READY of the last slice begins the turn; the lease starts now.
function rules.try_hold(id, r)
  for _, s in ipairs(rules.live(r)) do
    local nodes = words(record('slice', s).nodes)
    if #nodes > 0 and redis.call('SCARD', key('ready', s)) < #nodes then return end
  end
  write('request', id, { state = 'held', held = num(raw) })
  for _, s in ipairs(rules.live(r)) do write('slice', s, { state = 'held', since = num(raw) }) end
  rules.extend(id, tonumber(r.lease_ms))
  undue('switch|' .. id)
  hint('run:' .. r.run, 'held ' .. id)
  request_event('held', r, { waited_ms = num(raw - r.asked) })
end
