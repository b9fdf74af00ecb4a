-- Who is next.

-- A request ahead that cannot start, because a slice of it is blocked or another one settles, holds nobody up.
function rules.passed_over(r, here)
  for _, s in ipairs(words(r.slices)) do
    local S = record('slice', s)
    if not S or (s ~= here and S.settling) or rules.blocked(s, r.run) then return true end
  end
  return false
end

function rules.first_in(s, id)
  for _, other in ipairs(redis.call('ZRANGE', key('queue', s), 0, SCAN - 1)) do
    if other == id then return true end
    if not rules.passed_over(record('request', other), s) then return false end
  end
  return false
end
