-- Questions about slices. `rules` holds what needs one another; `touched` the slices to look at again.
local rules, touched = {}, {}

-- The longest lease that any client of the pool has asked for, in ms.
function rules.lease() return tonumber(record('meta', '').lease_ms) or LEASE end

-- The slices that a request has not given back.
function rules.live(r)
  local list = {}
  for _, s in ipairs(words(r.slices)) do
    if not contains(r.gone, s) then list[#list + 1] = s end
  end
  return list
end

-- The reason why a slice is blocked for a run. A run that cannot be evicted is not blocked by itself.
function rules.blocked(s, run)
  local all = (record('slice', s) or {}).blocked
  for node, why in pairs(all and cjson.decode(all) or {}) do
    if why.run ~= run then return why.reason, node, why.kind end
  end
end

function rules.free_for(s, r, id)
  local S = record('slice', s)
  return S and S.state == 'free' and not S.settling and (not S.kept or S.kept == id) and not rules.blocked(s, r.run)
end
