-- Where everything is free and nobody waits, a request needs no place in a queue.
local function nobody_waits(id, r)
  for _, s in ipairs(words(r.slices)) do
    if not rules.free_for(s, r, id) or rules.waiting(s) > 0 then return false end
  end
  return true
end

local function gather(id, r)
  redis.call('SADD', key('gathering'), id)
  hint('run:' .. r.run, 'look ' .. id)
end

-- The member takes part; with the last one the request enters its queues, at the first one's place.
local function join(id, r, member, process)
  local joined = contains(r.joined, member)
  write('request', id, { ['member:' .. member] = process, joined = with(r.joined, member) })
  for _, s in ipairs(joined and words(r.slices) or {}) do
    if record('slice', s).kept == id then touched[s] = 0 end       -- it was never told that its turn began
  end
  if joined then return end
  if #words(r.joined) < tonumber(r.members) then return gather(id, r) end
  if r.members ~= '1' then redis.call('SREM', key('gathering'), id) end
  write('request', id, { state = 'queued' })
  if nobody_waits(id, r) then rules.start(id, r) else rules.enqueue(id, r) end
end
