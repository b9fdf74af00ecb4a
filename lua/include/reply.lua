function rules.go_on()
  local s, from = next(touched)
  while s do
    touched[s] = nil
    look(s, from)
    s, from = next(touched)
  end
end

-- How every mutating script ends: what can start starts, and all changes are written.
local function reply(answer)
  rules.go_on()
  flush()
  return answer
end
