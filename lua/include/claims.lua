-- What the turn has again, if it may have all that is missing: whatever the member was told of and nobody has had since. What
-- it has given back itself, other members may still have.
local function claims(id, run, r, part, missing)
  local list, lacking = {}, table.concat(missing, ' ')
  for s, fence in pairs(part.fences) do
    if may_claim(id, run, s, fence) then
      if contains(lacking, s) or not contains(r and r.gone, s) then list[#list + 1] = s end
    elseif contains(lacking, s) or r and r.state == 'switching' and (record('slice', s) or {}).request == id then
      return nil
    end
  end
  return list
end
