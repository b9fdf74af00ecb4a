-- A new request.
local function open(id, run, job, lane, k)
  write('request', id, { job = job, run = run, lane = lane, k = num(k), slices = ARGV[7], members = ARGV[6],
                         state = 'gathering', priority = ARGV[12], phase = ARGV[13], lease_ms = ARGV[9], wait_ms = ARGV[10],
                         asked = num(raw - ARGV[11]), tick = place(ARGV[11]) })
  local R = record('run', run)
  if not R then due('run|' .. run, pool + FORGET_RUN) end
  write('run', run, { job = job, ['newest:' .. lane] = num(k), open = with((R or {}).open, id) })
  local longest = tonumber(record('meta', '').lease_ms) or 0
  if tonumber(ARGV[9]) > longest then write('meta', '', { lease_ms = ARGV[9] }) end
  return record('request', id)
end
