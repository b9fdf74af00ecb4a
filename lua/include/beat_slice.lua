-- What a beat does about each slice of its node, and what its reports are checked by.

-- A beat ends the node's silence.
local function wake(s, node)
  local why = (record('slice', s) or {}).blocked and rules.blocks(s)[node]
  if why and why.kind == 'silent' then rules.block(s, node, nil) end
end

-- What lies far ahead has been given out, or is none.
local function sane(S, top)
  if type(top) ~= 'number' or top ~= math.floor(top) or top < 0 then return false end
  return not far_ahead(top) or top <= (tonumber(S.fence) or 0)
end

local function shows(list, run)
  for _, other in ipairs(list or {}) do if other == run then return true end end
  return false
end

-- The next grant is above all that a node has admitted.
local function reseed(s, S, top)
  if top > (tonumber(S.admitted) or 0) then write('slice', s, { admitted = num(top) }) end
  if S.settling or S.state == 'held' or top <= (tonumber(S.fence) or 0) then return end
  write('slice', s, { fence = num(top) })
  if S.state == 'switching' then rules.requeue(S.request, 'its nodes have admitted a higher fence') end
end
