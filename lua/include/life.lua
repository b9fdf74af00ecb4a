-- `rules` holds the functions that need one another, and the request whose member is asking right now.
local rules = { just_asked = false }

-- What the caller says, in the last argument: which server its connection had led to when it was opened (a run id), and the
-- highest epoch that it has ever been told. Both are enough to notice a new primary at once, also one that was primary before and
-- has the run id and the data of that time: only those know who have been served by another one in between.
local told_life, told_epoch = string.match(ARGV[#ARGV], '^([^/]*)/?(%d*)$')
told_epoch = tonumber(told_epoch) or 0
if told_epoch > LAST_EPOCH then told_epoch = 0 end

-- Whether the primary is still the one that it was. Something in between may have passed the connection on to another server: so
-- the server itself is asked before anything is granted, told held or taken away, and by every heartbeat; not by every call,
-- since INFO costs as much as several of the others.
local asked_life = false

function rules.check_life()
  if asked_life then return end
  asked_life = true
  local life = server_run_id()
  if told_epoch > tonumber(meta.epoch) or meta.run_id and meta.run_id ~= life then rules.new_epoch(life)
  elseif not meta.run_id then write('meta', nil, { run_id = life }) end
end
