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

-- nil when the turn stands; else what the part is told.
local function reassert(id, run, job, process, part, missing)
  local r = record('request', id)
  if may_reassert(id, part, missing) then return restore_turn(id, run, job, process, part, missing) end
  if stored_switch(r, part) then return nil end       -- its nodes will say READY again
  if settles(missing) then return 'UNKNOWN' end
  if r then rules.finish(id, 'superseded', 'Redis lost this turn') end
  return 'LOST'
end
