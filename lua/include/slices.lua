-- Slices: `touched` are those to be looked at again, each from a place in its queue on.
local touched, counts = {}, {}

-- How many requests wait for a slice.
function rules.waiting(s)
  counts[s] = counts[s] or redis.call('ZCARD', key('queue', s))
  return counts[s]
end

local function tell_nodes(S, what)
  for _, node in ipairs(words(S.nodes)) do hint('node:' .. node, what) end
end
