-- Everything that can start now starts.
function rules.go_on()
  local s, from = next(touched)
  while s do
    touched[s] = nil
    local S = record('slice', s)
    if S and S.state == 'free' and not S.settling and rules.waiting(s) > 0 then rules.look(s, from) end
    s, from = next(touched)
  end
end

-- How every mutating script ends: what can start starts, and all changes are written.
local function reply(answer)
  rules.go_on()
  flush()
  return answer
end
