-- Questions about slices; `touched` are those to look at again.
local touched, counts = {}, {}

-- The longest lease that any client of the pool has asked for, in ms.
function rules.lease() return tonumber(record('meta', '').lease_ms) or LEASE end

-- The slices that a request has not given back.
function rules.live(r)
  local list = {}
  for _, s in ipairs(words(r.slices)) do
    if not contains(r.gone, s) then list[#list + 1] = s end
  end
  return list
end

function rules.tell_nodes(s, what, more)
  for _, node in ipairs(words(record('slice', s).nodes)) do hint('node:' .. node, what .. s .. (more or '')) end
end

-- How many requests wait for a slice.
function rules.waiting(s)
  counts[s] = counts[s] or redis.call('ZCARD', key('queue', s))
  return counts[s]
end
