-- A node has one agent. What another one is told as long as the first is heard of.
local function other_agent(node, agent)
  local known = record('node', node) or {}
  if known.agent and known.agent ~= agent and not known.silent then
    return { 'OTHER', 'by', known.agent, 'heard_ms', num(pool - (tonumber(known.beat_ms) or pool)) }
  end
end
