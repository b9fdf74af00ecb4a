--- @include "members"
--- @include "last_has_come"
-- A member's part of a turn ends.
local function mark(id, r, member, given)
  local yielded = given == '*' and '*' or r['yielded:' .. member]
  for _, s in ipairs(given == '*' and {} or given) do yielded = with(yielded, s) end
  write('request', id, { joined = with(r.joined, member), ['yielded:' .. member] = yielded })
end

-- Not before all have come does it go on without the member; until then its deadline stays.
local function goes_on(id, r)
  if r.state ~= 'gathering' then return true end
  if not rules.last_has_come(id, r) then return false end
  rules.enqueue(id, r)
  request_event('queued', r, 'waited_ms', num(raw - r.asked), 'priority', r.priority)
  return true
end

-- `given` is '*' or a list of slices; `outcome` is how the request ends with its last part. Withdrawing before it has begun ends
-- it for all. But one of an earlier epoch may have begun, which only its members know: the others have it, or still get it.
function rules.part(id, member, given, outcome, reason)
  local r = record('request', id)
  local held = r.state == 'held'
  if not held then rules.check_life() end
  if not held and r.epoch == meta.epoch then return rules.withdraw(id, member, outcome, reason) end
  mark(id, r, member, given)
  local back = given_back_by_all(r)
  if #back == #rules.live(r) then return rules.finish(id, outcome or held and 'yielded' or 'cancelled', reason) end
  if goes_on(id, r) then rules.give_back(id, r, member, held and back or {}) end
end
