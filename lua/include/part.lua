-- A member's part of a turn ends.
local function mark(id, r, member, given)
  local yielded = given == '*' and '*' or r['yielded:' .. member]
  for _, s in ipairs(given == '*' and {} or given) do yielded = with(yielded, s) end
  write('request', id, { joined = with(r.joined, member), ['yielded:' .. member] = yielded })
end

-- The slices of a request that all its members have given back, of those that it still has.
local function given_back_by_all(r)
  local list = {}
  for _, s in ipairs(rules.live(r)) do
    local count = 0
    for _, member in ipairs(words(r.joined)) do
      if rules.has_yielded(r, member, s) then count = count + 1 end
    end
    if count >= tonumber(r.members) then list[#list + 1] = s end
  end
  return list
end

-- `given` is '*' or a list of slices. Withdrawing before the turn has begun ends the request for all.
function rules.part(id, member, given)
  local r = record('request', id)
  if r.state ~= 'held' then return rules.finish(id, 'cancelled', 'member ' .. member .. ' withdrew') end
  mark(id, r, member, given)
  local back = given_back_by_all(r)
  if #back == #rules.live(r) then return rules.finish(id, 'yielded') end
  rules.give_back(id, r, member, back)
end
