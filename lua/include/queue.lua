-- Who is next: places in the queues, and scanning them.
function rules.enqueue(id, r)
  local head_start = r.priority * (tonumber(record('meta', '').head_start_ms) or HEAD_START)
  for _, s in ipairs(words(r.slices)) do
    redis.call('ZADD', key('queue', s), num(r.tick - head_start * 4096), id)
    touched[s] = 0
  end
end

function rules.dequeue(id, r)
  for _, s in ipairs(words(r.slices)) do redis.call('ZREM', key('queue', s), id) end
end

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
