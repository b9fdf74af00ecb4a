-- The nodes of a slice are to evict what is there and to load the run.
function rules.ask_nodes(s, r, fence)
  redis.call('DEL', key('ready', s))
  request_event('switching', r, { slice = s, fence = fence })
  rules.tell_nodes(s, 'grant ')
end

function rules.tell_nodes(s, what)
  for _, node in ipairs(words(record('slice', s).nodes)) do hint('node:' .. node, what .. s) end
end

function rules.touch_all()
  for _, s in ipairs(redis.call('SMEMBERS', key('slices'))) do touched[s] = 0 end
end
