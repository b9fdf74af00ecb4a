-- Deadlines that have passed.
local on_due = {}

local function quiet_until()
  rules.check_life()
  return tonumber(meta.quiet_until) or 0
end

function on_due.part(what)
  local id, member = string.match(what, '^(.+)|(.+)$')
  local r = record('request', id)
  if not r or r.state == 'ended' then return end
  if pool < quiet_until() then return due('part|' .. what, quiet_until()) end
  rules.finish(id, 'expired', 'member ' .. member .. ' was not heard of in time')
end
--- @include "reap_gather"
--- @include "reap_slices"
--- @include "reap_more"

function rules.reap(list)
  undue(unpack(list))
  for _, entry in ipairs(list) do
    local kind, what = string.match(entry, '^(%a+)|(.+)$')
    on_due[kind](what)
  end
end
