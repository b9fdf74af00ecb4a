-- One part of a renew: extended, re-asserted, unknown or lost.

-- Whether the process may speak for the member: it has joined, was told that the turn began, or takes nobody's place.
local function speaks_for(r, part, process)
  local told, known = next(part.fences or {}) ~= nil, r['member:' .. part.member]
  if not told and known and known ~= process then return false end
  return contains(r.joined, part.member) or r.state == 'held' and rules.takes_part(r, part.member)
end

local function renew_part(run, job, process, part)
  check_names(part.lane, part.member)
  local id = run .. '/' .. part.lane .. '/' .. num(part.k)
  local answer = { id = id, lane = part.lane, k = num(part.k) }
  local r = record('request', id)
  if r and r.state == 'ended' then return answer end
  local missing = missing_slices(id, r, part)
  if #missing > 0 then
    local verdict = reassert(id, run, job, process, part, missing)
    if verdict then answer.state = verdict; return answer end
    r = record('request', id)
  end
  if not r or not speaks_for(r, part, process) then answer.state = 'UNKNOWN'; return answer end
  write('request', id, { joined = with(r.joined, part.member), ['member:' .. part.member] = process })
  if r.state == 'held' and #(part.yielded or {}) > 0 then rules.part(id, part.member, part.yielded) end
  renew_deadline(id, r, part.member)
  return answer
end
