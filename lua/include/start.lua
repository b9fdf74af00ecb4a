-- A fence that is to be forgotten is so once its nodes have said again what they have admitted; until then nothing starts.
local function forget_fences(r)
  local any = false
  for _, s in ipairs(words(r.slices)) do
    if forgettable(record('slice', s)) then rules.unsettle(s); any = true end
  end
  return any
end

-- A request starts: the nodes of its slices are to evict what is there and to load the run.
function rules.start(id, r)
  if forget_fences(r) then return rules.enqueue(id, r) end
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
