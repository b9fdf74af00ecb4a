-- Places in the queues, and who is first.
function rules.enqueue(id, r)
  local head_start = r.priority * (meta.head_start_ms or HEAD_START)
  for _, s in ipairs(words(r.slices)) do
    redis.call('ZADD', key('queue', s), num(r.tick - head_start * 4096), id)
    touched[s], counts[s] = 0, nil
  end
end

function rules.dequeue(id, r)
  for _, s in ipairs(words(r.slices)) do
    redis.call('ZREM', key('queue', s), id)
    counts[s] = nil
  end
end

-- Whether everybody ahead of a request in a queue is passed over.
function rules.first_in(s, id)
  local place = redis.call('ZRANK', key('queue', s), id)
  if not place or place > FAR then return false end
  for from = 0, place - 1, SCAN do
    for _, other in ipairs(redis.call('ZRANGE', key('queue', s), from, math.min(from + SCAN, place) - 1)) do
      if not rules.passed_over(other, s) then return false end
    end
  end
  return true
end
--- @include "passed_over"
