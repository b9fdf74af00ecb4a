-- Whether a slice can be had.

-- The reason why a slice is blocked for a run. A run that cannot be evicted is not blocked by itself.
function rules.blocked(s, run)
  local all = (record('slice', s) or {}).blocked
  if not all then return end
  for node, why in pairs(cjson.decode(all)) do
    if why.run ~= run then return why.reason, node, why.kind end
  end
end

-- Why a node (or * for an operator) blocks a slice, if it does.
function rules.block_of(s, node)
  local all = (record('slice', s) or {}).blocked
  return all and cjson.decode(all)[node]
end

-- A kept slice waits for its holders' words.
function rules.free_for(s, r)
  local S = record('slice', s)
  if not S or S.state ~= 'free' or S.settling or r.later then return false end
  rules.check_life()
  return not S.settling and not S.kept and not rules.blocked(s, r.run)
end
