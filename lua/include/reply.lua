-- Everything that can start now starts.
local function go_on_with(s, from)
  local S = record('slice', s)
  if S and S.state == 'free' and not S.settling and rules.waiting(s) > 0 then rules.look(s, from) end
end

function rules.go_on()
  local s, from = next(touched)
  while s do
    touched[s] = nil
    apart(go_on_with, s, from)
    s, from = next(touched)
  end
end

-- How every mutating script ends: what can start starts, and all changes are written.
local function reply(answer)
  rules.go_on()
  flush()
  return answer
end
