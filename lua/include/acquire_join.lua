-- Where everything is free and nobody waits, a request needs no place in a queue.
local function nobody_waits(id, r)
  for _, s in ipairs(words(r.slices)) do
    if not rules.free_for(s, r, id) or redis.call('ZCARD', key('queue', s)) > 0 then return false end
  end
  return true
end

-- The member takes part; with the last one the request enters its queues, at the first one's place.
local function join(id, r, member, process)
  if (record('members', id) or {})[member] then
    write('members', id, { [member] = process })
    return
  end
  write('members', id, { [member] = process })
  write('request', id, { joined = num(r.joined + 1) })
  if r.joined ~= r.members then return hint('run:' .. r.run, 'look ' .. id) end
  write('request', id, { state = 'queued' })
  if nobody_waits(id, r) then rules.start(id, r) else rules.enqueue(id, r) end
end

local function open(id, run, job, lane, k)
  write('request', id, { job = job, run = run, lane = lane, k = num(k), slices = ARGV[7], members = ARGV[6], joined = '0',
                         state = 'gathering', priority = ARGV[12], phase = ARGV[13], lease_ms = ARGV[9], wait_ms = ARGV[10],
                         asked = num(raw - ARGV[11]), tick = place(ARGV[11]) })
  local R = record('run', run)
  if not R then due('run|' .. run, pool + FORGET_RUN) end
  write('run', run, { job = job, ['newest:' .. lane] = num(k), open = with((R or {}).open, id) })
  local longest = tonumber(record('meta', '').lease_ms) or 0
  if tonumber(ARGV[9]) > longest then write('meta', '', { lease_ms = ARGV[9] }) end
  return record('request', id)
end
