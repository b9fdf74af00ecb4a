-- A new request.

-- A place in the pool's one order: pool time in 1/4096 ms, never the same twice, minus what was waited already.
local function place(waited_ms)
  local tick = math.max(pool * 4096, (tonumber(meta.tick) or 0) + 1)
  write('meta', nil, { tick = num(tick) })
  return num(tick - waited_ms * 4096)
end

local function open(id, run, job, lane)
  write('request', id, { job = job, run = run, lane = lane, k = ARGV[4], slices = ARGV[7], members = ARGV[6],
                         state = 'gathering', epoch = meta.epoch, priority = ARGV[12], phase = ARGV[13],
                         lease_ms = ARGV[9], wait_ms = ARGV[10], asked = num(raw - ARGV[11]), tick = place(ARGV[11]) })
  local R = record('run', run)
  if not R then due('run|' .. run, pool + FORGET_RUN) end
  write('run', run, { job = job, ['newest:' .. lane] = ARGV[4], open = with((R or {}).open, id) })
  if tonumber(ARGV[9]) > (tonumber(meta.lease_ms) or 0) then write('meta', nil, { lease_ms = ARGV[9] }) end
  return record('request', id)
end

local function gather(id, r)
  redis.call('SADD', key('gathering'), id)
  hint('run:' .. r.run, 'look ' .. id)
end
