-- One part of a renew: extended, re-asserted, unknown or lost.
local function missing_slices(id, r, part)
  local list, yielded = {}, table.concat(part.yielded or {}, ' ')
  for s, fence in pairs(part.fences or {}) do
    local S = record('slice', s) or {}
    local here = r and r.state == 'held' and S.request == id and tonumber(S.fence) == fence
    local given = contains(yielded, s) or r and rules.has_yielded(r, part.member, s)  -- the latter: the yield came first
    if not here and not given then list[#list + 1] = s end
  end
  return list
end

local function renew_part(run, job, process, part)
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
  if not r then answer.state = 'UNKNOWN'; return answer end
  if not contains(r.joined, part.member) and r.state ~= 'held' then answer.state = 'UNKNOWN'; return answer end
  write('request', id, { joined = with(r.joined, part.member), ['member:' .. part.member] = process })
  if r.state == 'held' and #(part.yielded or {}) > 0 then rules.part(id, part.member, part.yielded) end
  renew_deadline(id, r, part.member)
  return answer
end
