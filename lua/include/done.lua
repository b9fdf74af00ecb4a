-- A member says which turns of a lane it is done with, so that a yield that Redis forgot is told again.
function rules.open_in_lane(run, lane)
  local list, lead = {}, run .. '/' .. lane .. '/'
  for _, id in ipairs(words((record('run', run) or {}).open)) do
    if string.sub(id, 1, #lead) == lead then list[#list + 1] = { id = id, k = tonumber(string.sub(id, #lead + 1)) } end
  end
  return list
end

-- When another live process was last heard of that is the member: a turn that it has is not anybody else's to end.
function rules.heard_of_other(run, r, member, process)
  local other = r['member:' .. member]
  return other and other ~= process and rules.alive(run, other)
end

-- `gave_up`: it gave the k-th up before that had begun.
function rules.done(run, lane, k, member, process, members, gave_up)
  if meta.keeping then rules.disown_until(run, lane, k, member, members) end
  for _, open in ipairs(rules.open_in_lane(run, lane)) do
    local r = open.k <= k and record('request', open.id)
    local its = r and r.state ~= 'ended' and rules.takes_part(r, member)
    if its and not rules.heard_of_other(run, r, member, process) then
      if gave_up and open.k == k and r.state ~= 'held' then rules.withdraw(open.id, member)
      elseif not rules.has_yielded(r, member) then rules.part(open.id, member, '*') end
    end
  end
end
