-- What `acquire` refuses because of the member or the slices.

-- A process that takes another live one's place would end its turn.
local function refuse_member(run, lane, member, process)
  for _, open in ipairs(rules.open_in_lane(run, lane)) do
    local r = record('request', open.id)
    local other = r['member:' .. member]
    if other and other ~= process and not rules.has_yielded(r, member) then
      local heard = rules.heard_of_other(run, r, member, process)
      if heard then return { 'TAKEN', 'by', other, 'heard_ms', num(heard) } end
      rules.exited(run, other, 'its process was replaced')
    end
  end
end

local function refuse_slices(run, slices)
  for _, s in ipairs(words(slices)) do
    local lost = (record('run', run) or {})['lost:' .. s]
    if not record('slice', s) then return { 'NO_SUCH_SLICE', 'slice', s } end
    if lost then return { 'RUN_LOST', 'slice', s, 'reason', lost } end
  end
end
