-- What `acquire` refuses because of the turn that is asked for.
local function refuse_open(run, lane, k, slices)
  local newest = tonumber((record('run', run) or {})['newest:' .. lane]) or 0
  if k <= newest then return { 'ENDED', 'ended', 'yielded', 'reason', 'it is no longer remembered', 'newest', num(newest) } end
  for _, s in ipairs(words(slices)) do
    if rules.waiting(s) >= QUEUE_LIMIT then return { 'QUEUE_FULL', 'slice', s } end
  end
end

local function refuse_join(id, r, member)
  if r.state == 'ended' then return rules.answer(id) end
  if r.slices ~= ARGV[7] or r.members ~= ARGV[6] then
    local missing = r.state == 'gathering' and num(r.members - #words(r.joined)) or '0'
    return { 'MISMATCH', 'missing', missing,
             'reason', 'another member asked for ' .. r.slices .. ' with ' .. r.members .. ' member(s)' }
  end
  if not rules.takes_part(r, member) then return { 'LATE' } end
end
