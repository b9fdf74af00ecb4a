-- A turn that Redis had lost, or knew not as held, is written anew as its holder knows it.
local function restore_turn(id, run, job, process, part, claimed)
  clear_the_way(id, run, part, claimed)
  for _, s in ipairs(claimed) do hold_again(s, id, part.fences[s]) end
  local r = record('request', id) or {}
  local changes = {
    job = job, run = run, lane = part.lane, k = num(part.k), members = num(part.members), joined = with(r.joined, part.member),
    slices = table.concat(part.slices, ' '), state = 'held', gone = given_back(id, part), held = r.held or now,
    asked = r.asked or now, tick = r.tick or num(pool * 4096), priority = num(part.priority or 0),
    phase = part.phase or '', lease_ms = ARGV[4], wait_ms = ARGV[5], reason = false,
  }
  changes['member:' .. part.member] = process
  for s, fence in pairs(part.fences) do changes['fence:' .. s] = num(fence) end
  write('request', id, changes)
  undue('switch|' .. id)
  local R = record('run', run) or {}
  local newest = math.max(tonumber(R['newest:' .. part.lane]) or 0, part.k)
  write('run', run, { job = job, open = with(R.open, id), ['newest:' .. part.lane] = num(newest) })
  if part.members > 1 then due('gather|' .. id, pool + ARGV[4]) end
  r = record('request', id)
  local left = table.concat(rules.live(r), ' ')          -- others may have by now what it has given back
  request_event('reasserted', setmetatable({ slices = left }, { __index = r }))
end
