-- Why a slice may not be changed or forgotten, and taking it from a node.
local function in_use(s)
  local S = record('slice', s)
  if S.state ~= 'free' then return 'it is ' .. S.state end
  if S.settling then return 'it settles after a restart of Redis' end
  if S.kept then return 'it is kept for ' .. S.kept end
  if redis.call('ZCARD', key('queue', s)) > 0 then return 'requests wait for it' end
  for _, node in ipairs(words(S.nodes)) do
    local report = (record('node', node) or {})['report:' .. s]
    local saved = report and cjson.decode(report).saved or {}
    if saved[1] then return 'run ' .. saved[1] .. ' is saved on node ' .. node end
  end
end

local function leave_node(s, node)
  write('slice', s, { ['devices:' .. node] = false, ['beat:' .. node] = false, ['tries:' .. node] = false })
  write('node', node, { slices = without((record('node', node) or {}).slices, s), ['report:' .. s] = false })
end
