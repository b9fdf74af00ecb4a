local function stored_switch(r, part)
  if not r or r.state ~= 'switching' then return false end
  for s, fence in pairs(part.fences) do
    if tonumber(r['fence:' .. s]) ~= fence then return false end
  end
  return true
end

local function settles(missing)
  for _, s in ipairs(missing) do
    if not record('slice', s) or record('slice', s).settling then return true end
  end
  return false
end

-- nil when the turn stands; else what the part is told.
local function reassert(id, run, job, process, part, missing)
  local r = record('request', id)
  local claimed = claims(id, run, r, part, missing)
  if claimed then return restore_turn(id, run, job, process, part, claimed) end
  if stored_switch(r, part) then return nil end       -- its nodes will say READY again
  if settles(missing) then return 'UNKNOWN' end
  if r then rules.part(id, part.member, '*', 'superseded', 'Redis lost this turn') end
  return 'LOST'
end
