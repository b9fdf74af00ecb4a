-- Whether a slice can be had.

-- Which nodes (or * for an operator) block a slice, and why. What makes no sense blocks nobody.
function rules.blocks(s)
  local all, sound = (record('slice', s) or {}).blocked, {}
  local ok, list = pcall(cjson.decode, all or '{}')
  for node, why in pairs(ok and type(list) == 'table' and list or {}) do
    if type(why) == 'table' and type(why.reason) == 'string' then sound[node] = why end
  end
  return sound
end

-- The reason why a slice is blocked for a run. A run that cannot be evicted is not blocked by itself.
function rules.blocked(s, run)
  if not (record('slice', s) or {}).blocked then return end
  for node, why in pairs(rules.blocks(s)) do
    if why.run ~= run then return why.reason, node, why.kind end
  end
end

-- A kept slice waits for its holders' words.
function rules.free_for(s, r)
  local S = record('slice', s)
  if not readable(S) or S.state ~= 'free' or S.settling or r.later then return false end
  rules.check_life()
  return not S.settling and not S.kept and not rules.blocked(s, r.run)
end
