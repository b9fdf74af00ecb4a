-- Deadlines that have passed.
local on_due = {}

function on_due.part(what)
  local id, member = string.match(what, '^(.+)|(.+)$')
  local r = record('request', id)
  if not r or r.state == 'ended' then return end
  rules.check_life()
  local quiet = tonumber(record('meta', '').quiet_until) or 0
  if pool < quiet then return due('part|' .. what, quiet) end
  rules.finish(id, 'expired', 'member ' .. member .. ' was not heard of in time')
end

-- Of a re-asserted turn, every member has to come back.
function on_due.gather(id)
  local r = record('request', id)
  if r and #words(r.joined) < tonumber(r.members) then on_due.part(id .. '|of the others') end
end
--- @include "reap_slices"
--- @include "reap_more"

function rules.reap(list)
  undue(unpack(list))
  for _, entry in ipairs(list) do
    local kind, what = string.match(entry, '^(%a+)|(.+)$')
    on_due[kind](what)
  end
end
