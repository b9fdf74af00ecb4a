-- A request starts: the nodes of its slices are to evict what is there and to load the run.
function rules.start(id, r)
  local changes = { state = 'switching', reason = false }
  for _, s in ipairs(words(r.slices)) do
    local S = record('slice', s)
    if S.kept then rules.unkeep_slice(s) end
    local fence = num(math.max((tonumber(S.fence) or 0) + 1, raw * 1024))
    changes['fence:' .. s] = fence
    write('slice', s, { state = 'switching', request = id, fence = fence, since = now })
    if S.nodes then
      request_event('switching', r, 'slice', s, 'fence', fence)
      tell_nodes(S, 'grant ' .. s)
    end
  end
  write('request', id, changes)
  rules.try_hold(id, r)
end
--- @include "hold"
