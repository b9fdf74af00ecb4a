-- Who waits for a slice, as its holder learns it.
local function call_for(s)
  local S = record('slice', s)
  local holder = S.state == 'held' and record('request', S.request)
  if holder then hint('run:' .. holder.run, 'wanted ' .. s) end
end

function rules.call_for(r)
  for _, s in ipairs(words(r.slices)) do apart(call_for, s) end
end

function rules.somebody_waits(r)
  for _, s in ipairs(rules.live(r)) do
    if rules.waiting(s) > 0 then return true end
  end
  return false
end
