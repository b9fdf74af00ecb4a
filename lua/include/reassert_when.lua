-- A turn that its holder was told of and Redis does not know, or not as held.
local function may_reassert(id, part, missing)
  for _, s in ipairs(missing) do
    local S = record('slice', s)
    if not S or part.fences[s] < (tonumber(S.fence) or 0) then return false end
    if not S.settling and S.kept ~= id then return false end
  end
  return true
end

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
