-- Whether all nodes of a slice have last reported a run under this fence.
local function shown(S, s, run, fence)
  for _, node in ipairs(words(S.nodes)) do
    local report = (record('node', node) or {})['report:' .. s]
    local b = report and cjson.decode(report) or {}
    if b.run ~= run or tonumber(b.fence) ~= fence then return false end
  end
  return true
end

-- Whether a member may have a slice again that it was told of under this fence: nobody has had it since. A switch that its nodes
-- show as done has become its turn.
local function may_claim(id, run, s, fence)
  local S = record('slice', s)
  local top = S and tonumber(S.fence) or 0
  if not S or fence < top then return false end
  if S.settling or S.kept == id then return true end
  return S.request == id and fence == top and shown(S, s, run, fence)
end
