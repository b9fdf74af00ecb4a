-- A member says which turns of a lane it is done with, so that a yield that Redis forgot is told again.
local function id_parts(id)
  local run, lane, k = string.match(id, '^([^/]+)/([^/]+)/(%d+)$')
  return run, lane, tonumber(k)
end

function rules.open_in_lane(run, lane)
  local list = {}
  for _, id in ipairs(words((record('run', run) or {}).open)) do
    local _, its_lane, k = id_parts(id)
    if its_lane == lane then list[#list + 1] = { id = id, k = k } end
  end
  return list
end

function rules.done(run, lane, k, member)
  if record('meta', '').kept then rules.unkeep(run, lane, k) end
  for _, open in ipairs(rules.open_in_lane(run, lane)) do
    local r = record('request', open.id)
    local concerned = r.state == 'held' or r.state == 'gathering' or contains(r.joined, member)
    concerned = concerned and r.state ~= 'ended' and not rules.has_yielded(r, member)
    if concerned and open.k <= k then rules.part(open.id, member, '*') end
  end
end
