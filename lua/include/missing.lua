-- The slices that a holder has and Redis does not know as its own.
local function missing_slices(id, r, part)
  local list, yielded = {}, table.concat(part.yielded or {}, ' ')
  for s, fence in pairs(part.fences or {}) do
    local S = record('slice', s) or {}
    local here = r and r.state == 'held' and S.request == id and tonumber(S.fence) == fence
    local given = contains(yielded, s) or r and rules.has_yielded(r, part.member, s)  -- the latter: the yield came first
    if not here and not given then list[#list + 1] = s end
  end
  return list
end
