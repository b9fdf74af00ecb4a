--- @include "revision"
--- @include "exit_seen"
-- Processes of a run that are gone.
function rules.alive(run, process)
  local P = record('process', run .. '/' .. process)
  local heard_ms = P and pool - P.heard
  return heard_ms and heard_ms < HEARD and heard_ms
end

local function forget_process(run, process)
  erase('process', run .. '/' .. process)
  redis.call('SREM', key('procs', run), process)
  rules.new_revision(run)
  due('run|' .. run, pool + FORGET_RUN)
end

function rules.exited(run, process, reason)
  if not record('process', run .. '/' .. process) then return end
  forget_process(run, process)
  local last = redis.call('SCARD', key('procs', run)) == 0
  for _, id in ipairs(words(record('run', run).open)) do
    local r = record('request', id)
    for _, member in ipairs(words(r.joined)) do
      local its = last or r['member:' .. member] == process and not rules.has_yielded(r, member)
      if its and r.state ~= 'ended' then rules.finish(id, 'holder_died', reason) end
    end
  end
end
