-- Declares a slice with all its nodes and devices, or changes one that is not in use.
-- KEYS[1] meta
-- ARGV[1] slice (name)
-- ARGV[2] nodes (JSON: node to list of devices; empty: agentless)
-- ARGV[3] settings (JSON)
-- ARGV[4] keep_nodes (1 or 0: whether a slice that has nodes is not to be made agentless)
-- OK it is as asked
-- IN_USE it is, and would have to change: reason
-- HAS_NODES it has, and would lose them, which was not meant: nodes
-- OVERLAP a device belongs to another slice: slice, reason
-- SCHEMA the pool belongs to another version: found, expected
-- Idempotent: declaring the same again changes nothing.
--- @include "names"
check_names(ARGV[1])
--- @include "base"
local by_node = cjson.decode(ARGV[2])
for node in pairs(by_node) do check_names(node) end
--- @include "begin"
--- @include "in_use"
--- @include "leave_node"
local s, S = ARGV[1], record('slice', ARGV[1])

local names, changes = {}, { settings = ARGV[3] }
for node, devices in pairs(by_node) do
  names[#names + 1] = node
  changes['devices:' .. node] = table.concat(devices, ' ')
end
table.sort(names)
changes.nodes = #names > 0 and table.concat(names, ' ')

local same = S ~= nil
for field, value in pairs(changes) do same = same and (S[field] or false) == value end
if same then return reply({ 'OK' }) end
if ARGV[4] == '1' and S and S.nodes and not changes.nodes then
  local theirs = {}
  for _, node in ipairs(words(S.nodes)) do theirs[node] = S['devices:' .. node] or '' end
  return reply({ 'HAS_NODES', 'nodes', cjson.encode(theirs) })
end

for _, other in ipairs(redis.call('SMEMBERS', key('slices'))) do
  for _, node in ipairs(names) do
    for _, device in ipairs(other ~= s and by_node[node] or {}) do
      if contains((record('slice', other) or {})['devices:' .. node], device) then
        return reply({ 'OVERLAP', 'slice', other, 'reason', device .. ' of node ' .. node .. ' is in slice ' .. other })
      end
    end
  end
end
local reason = S and in_use(s)
if reason then return reply({ 'IN_USE', 'reason', reason }) end

for _, node in ipairs(words(S and S.nodes)) do leave_node(s, node) end
write('slice', s, changes)
if not S then write('slice', s, { state = 'free', fence = '0', since = now }) end
redis.call('SADD', key('slices'), s)
for _, node in ipairs(names) do
  write('node', node, { slices = with((record('node', node) or {}).slices, s) })
  redis.call('SADD', key('nodes'), node)
  if not record('node', node).beat_ms then due('node|' .. node, pool + NODE_PATIENCE) end
end
event('declared', 'slice', s, 'nodes', changes.nodes or nil)
if #names > 0 then rules.unsettle(s) end
rules.touch_all()
return reply({ 'OK' })
