-- The members of a request and their parts.
function rules.members(id)
  local list = {}
  for field in pairs(record('members', id) or {}) do
    if not string.find(field, '#', 1, true) then list[#list + 1] = field end
  end
  table.sort(list)
  return list
end

function rules.has_yielded(id, member, s)
  local given = (record('members', id) or {})[member .. '#yielded']
  return given == '*' or (s and contains(given, s)) or false
end

-- Every member that still has a part is heard of, or has `ms` from now.
function rules.extend(id, ms)
  for _, member in ipairs(rules.members(id)) do
    if not rules.has_yielded(id, member) then due('part|' .. id .. '|' .. member, pool + ms) end
  end
end

function rules.overdue(id)
  for _, member in ipairs(rules.members(id)) do
    local at = redis.call('ZSCORE', key('deadlines'), 'part|' .. id .. '|' .. member)
    if at and tonumber(at) < pool then return member end
  end
end
