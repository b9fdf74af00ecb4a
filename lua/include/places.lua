-- Places in the queues.
function rules.enqueue(id, r)
  local head_start = r.priority * (tonumber(record('meta', '').head_start_ms) or HEAD_START)
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
