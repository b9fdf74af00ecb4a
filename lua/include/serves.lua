-- Whether a node is one of a slice's.
local function serves(s, node)
  return record('slice', s) and contains(record('slice', s).nodes, node)
end
