-- Whether a member has a word in a request: it has joined, or members have still to come, or to come back.
function rules.takes_part(r, member)
  return contains(r.joined, member) or #words(r.joined) < tonumber(r.members)
end

-- One that gives up before the turn has begun ends the request for all.
function rules.withdraw(id, member, outcome, reason)
  rules.finish(id, outcome or 'cancelled', reason or 'member ' .. member .. ' withdrew')
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
