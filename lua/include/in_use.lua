-- A slice that settles waits for nodes that may never come.
local function waits_in_vain(s, S)
  for node, why in pairs(rules.blocks(s)) do
    if why.kind == 'silent' and not S['beat:' .. node] then return true end
  end
  return false
end

-- Why a slice may not be changed or forgotten.
local function in_use(s)
  local S = record('slice', s)
  if S.state ~= 'free' then return 'it is ' .. S.state end
  if S.settling and S.fence ~= '0' and not waits_in_vain(s, S) then return 'it settles after a restart of Redis' end
  if S.kept then return 'it is kept for ' .. S.kept end
  if rules.waiting(s) > 0 then return 'requests wait for it' end
  for _, node in ipairs(words(S.nodes)) do
    local report = (record('node', node) or {})['report:' .. s]
    local saved = report and cjson.decode(report).saved or {}
    if saved[1] then return 'run ' .. saved[1] .. ' is saved on node ' .. node end
  end
end
