-- From waiting to held. The nodes of a slice are to evict what is there and to load the run.
local function ask_nodes(s, r, fence)
  request_event('switching', r, 'slice', s, 'fence', fence)
  rules.tell_nodes(s, 'grant ', ' ' .. fence .. ' ' .. r.run .. '/' .. r.lane .. '/' .. r.k)
end

function rules.start(id, r)
  local changes = { state = 'switching', reason = false }
  for _, s in ipairs(words(r.slices)) do
    local S = record('slice', s)
    if S.kept then rules.unkeep_slice(s) end
    local fence = num(math.max((tonumber(S.fence) or 0) + 1, raw * 1024))
    changes['fence:' .. s] = fence
    write('slice', s, { state = 'switching', request = id, fence = fence, since = num(raw) })
    if S.nodes then ask_nodes(s, r, fence) end
  end
  write('request', id, changes)
  rules.try_hold(id, r)
end
