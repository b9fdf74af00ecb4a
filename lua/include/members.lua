-- The members of a request: `joined` lists them, `member:<m>` is each one's process, `yielded:<m>` what it has given back
-- (a list of slices, or * for all).
function rules.has_yielded(r, member, s)
  local given = r['yielded:' .. member]
  return given == '*' or (s and contains(given, s)) or false
end

-- Every member that still has a part is heard of, or has `ms` from now.
function rules.extend(id, r, ms)
  for _, member in ipairs(words(r.joined)) do
    if not rules.has_yielded(r, member) then due('part|' .. id .. '|' .. member, pool + ms) end
  end
end

function rules.overdue(id, r)
  if pool < (tonumber(record('meta', '').quiet_until) or 0) then return nil end
  for _, member in ipairs(words(r.joined)) do
    local at = redis.call('ZSCORE', key('deadlines'), 'part|' .. id .. '|' .. member)
    if at and tonumber(at) < pool then return member end
  end
end
