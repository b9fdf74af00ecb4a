-- `rules` holds the functions that need one another, and the request whose member is asking right now.
local rules = { just_asked = false }

-- Whether the primary is still the one that it was. Whoever calls says which server its connection has led to when it was opened
-- (a run id, the last argument), which is enough to notice a new one at once. But something in between may have passed the
-- connection on to another server: so the server itself is asked before anything is granted, told held or taken away, and by
-- every heartbeat; not by every call, since INFO costs as much as several of the others.
local asked_life = false

function rules.check_life()
  if asked_life then return end
  asked_life = true
  local life = server_run_id()
  if not meta.run_id then write('meta', nil, { run_id = life }) elseif meta.run_id ~= life then rules.new_epoch(life) end
end
