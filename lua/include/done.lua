-- A member says which turns of a lane it is done with, so that a yield that Redis forgot is told again.
function rules.open_in_lane(run, lane)
  local list, lead = {}, run .. '/' .. lane .. '/'
  for _, id in ipairs(words((record('run', run) or {}).open)) do
    if string.sub(id, 1, #lead) == lead then list[#list + 1] = { id = id, k = tonumber(string.sub(id, #lead + 1)) } end
  end
  return list
end

function rules.done(run, lane, k, member)
  if meta.keeping then rules.unkeep(run, lane, k) end
  for _, open in ipairs(rules.open_in_lane(run, lane)) do
    local r = record('request', open.id)
    local concerned = r.state == 'held' or r.state == 'gathering' or contains(r.joined, member)
    concerned = concerned and r.state ~= 'ended' and not rules.has_yielded(r, member)
    if concerned and open.k <= k then rules.part(open.id, member, '*') end
  end
end
