-- `rules` holds the functions that need one another, and the request whose member is asking right now.
local rules = { just_asked = false }

-- Whether the primary is still the one that it was. Asked before anything is granted or taken away, and by every heartbeat; not
-- by every call, since INFO costs as much as several of the others.
local asked_life = false

function rules.check_life()
  if asked_life then return end
  asked_life = true
  local life = server_run_id()
  if not meta.run_id then write('meta', nil, { run_id = life }) elseif meta.run_id ~= life then rules.new_epoch(life) end
end
