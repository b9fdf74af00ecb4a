-- Slices: `touched` are those to be looked at again, each from a place in its queue on.
local touched, counts = {}, {}

-- How many requests wait for a slice.
function rules.waiting(s)
  counts[s] = counts[s] or redis.call('ZCARD', key('queue', s))
  return counts[s]
end

-- Whether a slice's record tells what a grant needs. Nodes that cannot be read are not none: no agent would let the run in.
local function readable(S) return S ~= nil and tonumber(S.fence) ~= nil and type(S.nodes or '') == 'string' end

-- Whether a fence lies further ahead of the clock than any that nodes take.
local function far_ahead(fence) return fence > (raw + MAX_AHEAD) * 1024 end

-- Whether a free slice's fence is one that its nodes would refuse, and none has admitted: the clock was ahead at its grant.
local function forgettable(S)
  return S.nodes and S.state == 'free' and far_ahead(tonumber(S.fence)) and not far_ahead(tonumber(S.admitted) or 0)
end

local function tell_nodes(S, what)
  for _, node in ipairs(words(S.nodes)) do hint('node:' .. node, what) end
end
