-- A member's part of a turn ends.
local function given_back_by_all(r, s)
  local count = 0
  for _, member in ipairs(words(r.joined)) do
    if rules.has_yielded(r, member, s) then count = count + 1 end
  end
  return count >= tonumber(r.members)
end

local function mark(id, r, member, given)
  local yielded = given == '*' and '*' or r['yielded:' .. member]
  for _, s in ipairs(given == '*' and {} or given) do yielded = with(yielded, s) end
  write('request', id, { joined = with(r.joined, member), ['yielded:' .. member] = yielded })
end

-- `given` is '*' or a list of slices. Withdrawing before the turn has begun ends the request for all.
function rules.part(id, member, given)
  local r = record('request', id)
  if r.state ~= 'held' then return rules.finish(id, 'cancelled', 'member ' .. member .. ' withdrew') end
  mark(id, r, member, given)
  local left, gone = false, r.gone
  for _, s in ipairs(rules.live(r)) do
    left = left or not rules.has_yielded(r, member, s)
    if given_back_by_all(r, s) then gone = with(gone, s) end
  end
  rules.give_back(id, r, member, gone, left)
end
