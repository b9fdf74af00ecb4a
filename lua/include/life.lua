-- `rules` holds the functions that need one another, and the request whose member is asking right now.
local rules = { just_asked = false }

-- Whether the primary is still the one that it was. Asked before anything is granted or taken away, and by every heartbeat; not
-- by every call, since INFO costs as much as several of the others.
local asked_life = false

function rules.check_life()
  if asked_life then return end
  asked_life = true
  local life, known = server_run_id(), record('meta', '').run_id
  if not known then write('meta', '', { run_id = life }) elseif known ~= life then rules.new_epoch(life) end
end
