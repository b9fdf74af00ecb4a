-- The view of a request for `status`.
local NUMBERS = { 'k', 'priority', 'members', 'lease_ms', 'wait_ms', 'tick', 'asked' }
local TEXTS = { 'run', 'job', 'lane', 'slices', 'joined', 'state' }

local function view_request(id)
  local r = assert(record('request', id), 'it is not there, or no record')
  for _, field in ipairs(NUMBERS) do assert(tonumber(r[field]), 'its ' .. field .. ' is no number') end
  for _, field in ipairs(TEXTS) do assert(type(r[field]) == 'string', 'its ' .. field .. ' is no text') end
  local answer = r.state ~= 'held' and rules.answer(id) or {}
  local reason, soonest = r.reason or '', nil
  for i = 2, #answer, 2 do if answer[i] == 'reason' and answer[i + 1] ~= '' then reason = answer[i + 1] end end
  for _, member in ipairs(words(r.joined)) do
    local at = redis.call('ZSCORE', DEADLINES, 'part|' .. id .. '|' .. member)
    if at and (not soonest or tonumber(at) < soonest) then soonest = tonumber(at) end
  end
  return { id = id, run = r.run, job = r.job, lane = r.lane, k = r.k, state = r.state, phase = r.phase or '',
           priority = r.priority, slices = r.slices, members = r.members, joined = num(#words(r.joined)), reason = reason,
           waited_ms = num((r.held or raw) - r.asked), held_ms = num(r.held and raw - r.held or 0),
           lease_left_ms = num(soonest and soonest - pool or 0) }
end
