-- Who holds nobody up: a request that cannot start, because a slice of it is blocked or kept, or another one settles, or because
-- it is to be tried again later, and an entry of a queue whose record somebody has removed.
function rules.passed_over(id, here)
  local r = record('request', id)
  for _, s in ipairs(words(r and r.slices)) do
    local S = record('slice', s)
    if not readable(S) or (s ~= here and S.settling) or S.kept or rules.blocked(s, r.run) then return true end
  end
  return not r or r.later ~= nil or r.state ~= 'queued'
end

-- The first member of a waiting request that was not heard of in time.
function rules.overdue(id, r)
  if pool < (tonumber(meta.quiet_until) or 0) then return nil end
  for _, member in ipairs(words(r.joined)) do
    local at = redis.call('ZSCORE', DEADLINES, 'part|' .. id .. '|' .. member)
    if at and tonumber(at) < pool then return member end
  end
end
