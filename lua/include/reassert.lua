--- @include "reassert_when"
--- @include "reassert_turn"

-- nil when the turn stands; else what the part is told.
local function reassert(id, run, job, process, part, missing)
  local r = record('request', id)
  if may_reassert(id, part, missing) then return restore_turn(id, run, job, process, part, missing) end
  if stored_switch(r, part) then return nil end       -- its nodes will say READY again
  if settles(missing) then return 'UNKNOWN' end
  if r then rules.finish(id, 'superseded', 'Redis lost this turn') end
  return 'LOST'
end
