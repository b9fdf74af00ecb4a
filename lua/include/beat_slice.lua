-- What a beat does about each slice of its node, and what its reports are checked by.

-- A beat ends the node's silence.
local function wake(s, node)
  local why = (record('slice', s) or {}).blocked and rules.block_of(s, node)
  if why and why.kind == 'silent' then rules.block(s, node, nil) end
end

local function sane(top)
  return type(top) == 'number' and top == math.floor(top) and top >= 0 and top <= (raw + MAX_AHEAD) * 1024
end

local function shows(list, run)
  for _, other in ipairs(list or {}) do if other == run then return true end end
  return false
end
