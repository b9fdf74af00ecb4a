-- A node has one agent. What another one is told as long as the first is heard of.

-- Who it is, without its host: a container made anew has another one.
local function who(agent) return string.match(tostring(agent), '^[^@]*') end

local function other_agent(node, agent)
  local known = record('node', node) or {}
  if known.agent and who(known.agent) ~= who(agent) and not known.silent then
    local beat_ms = tonumber(known.beat_ms) or 0
    return { 'OTHER', 'by', known.agent, 'heard_ms', num(pool - beat_ms), 'beat_ms', num(beat_ms), 'epoch', meta.epoch }
  end
end
