-- Deadlines that have passed.
local on_due = {}

local function quiet_until()
  rules.check_life()
  return tonumber(meta.quiet_until) or 0
end

--- @include "reap_requests"
--- @include "reap_slices"
--- @include "reap_nodes_and_runs"

function rules.reap(list)
  undue(unpack(list))
  for _, entry in ipairs(list) do
    local kind, what = string.match(entry, '^(%a+)|(.+)$')
    if on_due[kind] then apart(on_due[kind], what) end
  end
  rules.go_on()
  flush()
end
