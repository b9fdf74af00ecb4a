-- The slices of a turn become held again, and what had taken its place is over.
local function clear_the_way(id, run, part, claimed)
  for _, s in ipairs(claimed) do
    local other = record('slice', s).request
    if other and other ~= id then rules.overtake(s, other, 'a turn that Redis had lost was re-asserted') end
  end
  for _, s in ipairs(part.slices) do redis.call('ZREM', key('queue', s), id) end
  redis.call('SREM', key('gathering'), id)
  for _, open in ipairs(rules.open_in_lane(run, part.lane)) do
    if open.k < part.k then rules.finish(open.id, 'superseded', 'the run is past this turn') end
  end
end

local function hold_again(s, id, fence)
  if record('slice', s).kept then rules.unkeep_slice(s) end
  write('slice', s, { state = 'held', request = id, fence = num(fence), since = now })
  for _, node in ipairs(words(record('slice', s).nodes)) do redis.call('SADD', key('ready', s), node) end
end

local function given_back(id, part)
  local gone = ''
  for _, s in ipairs(part.slices) do
    if (record('slice', s) or {}).request ~= id then gone = with(gone, s) end
  end
  return gone
end
