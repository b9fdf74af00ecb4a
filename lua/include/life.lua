-- `rules` holds the functions that need one another, and the request whose member is asking right now.
local rules = { just_asked = false }

-- Whether the primary is still the one that it was. An open connection leads to one server, so whoever calls knows the run id
-- of the server that it has reached, and says it as the last argument. Only when that is not the one that the pool knows, the
-- server itself is asked: INFO costs as much as several other commands. Heartbeats ask always, so that it is noticed even
-- where something in between passes an open connection on to another server.
function rules.check_life()
  local life = server_run_id()
  if not meta.run_id then write('meta', nil, { run_id = life }) elseif meta.run_id ~= life then rules.new_epoch(life) end
end
