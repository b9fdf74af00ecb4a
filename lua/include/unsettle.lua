-- Nothing starts on a slice until its nodes have reported; an agentless one waits for a lease.
function rules.unsettle(s, patience)
  local S = record('slice', s)
  local agentless = not S.nodes or S.nodes == ''
  local at = pool + (agentless and rules.lease() or patience)
  local changes = { settling = num(at) }
  for _, node in ipairs(words(S.nodes)) do changes['beat:' .. node] = false end
  if S.kept then rules.unkeep_slice(s) end
  write('slice', s, changes)
  due('settle|' .. s, at)
end
