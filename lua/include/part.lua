-- A member's part of a turn ends.
local function given_back_by_all(id, r, s)
  local count = 0
  for _, member in ipairs(rules.members(id)) do
    if rules.has_yielded(id, member, s) then count = count + 1 end
  end
  return count >= tonumber(r.members)
end

local function mark(id, member, given)
  local m = record('members', id) or {}
  local yielded = given == '*' and '*' or m[member .. '#yielded']
  for _, s in ipairs(given == '*' and {} or given) do yielded = with(yielded, s) end
  write('members', id, { [member] = m[member] or '-', [member .. '#yielded'] = yielded })
end

-- `given` is '*' or a list of slices. Withdrawing before the turn has begun ends the request for all.
function rules.part(id, member, given)
  local r = record('request', id)
  if r.state ~= 'held' then return rules.finish(id, 'cancelled', 'member ' .. member .. ' withdrew') end
  mark(id, member, given)
  local left, gone = false, r.gone
  for _, s in ipairs(rules.live(r)) do
    left = left or not rules.has_yielded(id, member, s)
    if given_back_by_all(id, r, s) then gone = with(gone, s) end
  end
  rules.give_back(id, r, member, gone, left)
end
