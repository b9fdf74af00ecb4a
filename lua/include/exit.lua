-- Processes of a run that are gone.
function rules.alive(run, process)
  local heard = (record('procs', run) or {})[process .. '#heard']
  return heard and pool - tonumber(heard) < HEARD and pool - tonumber(heard)
end

local function forget_process(run, process)
  local fields = { process, process .. '#heard', process .. '#command', process .. '#answer' }
  redis.call('HDEL', key('procs', run), unpack(fields))
  for _, field in ipairs(fields) do record('procs', run)[field] = nil end
  rules.bump(run)
  due('run|' .. run, pool + FORGET_RUN)
end

function rules.exited(run, process, reason)
  if not (record('procs', run) or {})[process] then return end
  forget_process(run, process)
  local last = next(record('procs', run)) == nil
  for _, id in ipairs(words(record('run', run).open)) do
    local r = record('request', id)
    for _, member in ipairs(words(r.joined)) do
      local its = last or r['member:' .. member] == process and not rules.has_yielded(r, member)
      if its and r.state ~= 'ended' then rules.finish(id, 'holder_died', reason) end
    end
  end
end
