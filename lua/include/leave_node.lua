-- Takes a slice from a node.
local function leave_node(s, node)
  rules.block(s, node, nil)
  write('slice', s, { ['devices:' .. node] = false, ['beat:' .. node] = false, ['tries:' .. node] = false })
  write('node', node, { slices = without((record('node', node) or {}).slices, s), ['report:' .. s] = false })
end
