-- Everything that can start now starts. Called once, after the script has changed what it has to.
local budget = SCAN

local function look(s, from)
  local S = record('slice', s)
  if not S or S.state ~= 'free' or S.settling then return end
  local ids = redis.call('ZRANGE', key('queue', s), from, from + SCAN - 1)
  for i, id in ipairs(ids) do
    if budget == 0 then return due('scan|' .. s .. '|' .. num(from + i - 1), pool - 1) end
    budget = budget - 1
    local r = record('request', id)
    if rules.startable(id, r, s) then
      local late = id ~= rules.fresh and rules.overdue(id)
      if not late then return rules.start(id, r) end
      rules.finish(id, 'expired', 'member ' .. late .. ' was not heard of in time')
      return
    end
    if not rules.passed_over(r, s) then return end
  end
  if #ids == SCAN then due('scan|' .. s .. '|' .. num(from + SCAN), pool - 1) end
end

function rules.go_on()
  local s = next(touched)
  while s do
    local from = touched[s]
    touched[s] = nil
    look(s, from)
    s = next(touched)
  end
end
