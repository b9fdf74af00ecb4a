-- Looks through a queue for the first request that can start.
local budget = SCAN

local function startable(id, r, here)
  for _, s in ipairs(words(r.slices)) do
    if not rules.free_for(s, r) or (s ~= here and not rules.first_in(s, id)) then return false end
  end
  return true
end

local function try_start(id, r)
  local late = id ~= rules.just_asked and rules.overdue(id, r)
  if late then return rules.finish(id, 'expired', 'member ' .. late .. ' was not heard of in time') end
  rules.dequeue(id, r)
  rules.start(id, r)
end

function rules.look(s, from)
  local ids = redis.call('ZRANGE', key('queue', s), from, from + SCAN - 1)
  for i, id in ipairs(ids) do
    if budget == 0 then return due('scan|' .. s .. '|' .. num(from + i - 1), pool - 1) end
    budget = budget - 1
    local r = record('request', id)
    if r and r.state == 'queued' and startable(id, r, s) then return try_start(id, r) end
    if not rules.passed_over(id, s) then return end
  end
  if #ids == SCAN then due('scan|' .. s .. '|' .. num(from + SCAN), pool - 1) end
end
