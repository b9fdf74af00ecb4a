-- Who is next.

-- A request ahead that cannot start, because a slice of it is blocked or another one settles, holds nobody up; nor does an
-- entry whose record somebody has removed.
function rules.passed_over(r, here)
  for _, s in ipairs(words(r and r.slices)) do
    local S = record('slice', s)
    if not S or (s ~= here and S.settling) or rules.blocked(s, r.run) then return true end
  end
  return not r
end

-- Whether everybody ahead of a request in a queue is passed over.
function rules.first_in(s, id)
  local place = redis.call('ZRANK', key('queue', s), id)
  if not place or place > FAR then return false end
  for from = 0, place - 1, SCAN do
    for _, other in ipairs(redis.call('ZRANGE', key('queue', s), from, math.min(from + SCAN, place) - 1)) do
      if not rules.passed_over(record('request', other), s) then return false end
    end
  end
  return true
end
