-- Processes of a run that are gone.
function rules.bump(run)
  write('run', run, { rev = num((tonumber((record('run', run) or {}).rev) or 0) + 1) })
end

function rules.alive(run, process)
  local heard = (record('procs', run) or {})[process .. '#heard']
  return heard and pool - tonumber(heard) < HEARD and pool - tonumber(heard)
end

function rules.exited(run, process, reason)
  local procs = record('procs', run) or {}
  if not procs[process] then return end
  write('procs', run, { [process] = false, [process .. '#heard'] = false,
                        [process .. '#command'] = false, [process .. '#answer'] = false })
  rules.bump(run)
  local last = next(record('procs', run)) == nil
  for _, id in ipairs(words(record('run', run).open)) do
    for _, member in ipairs(rules.members(id)) do
      local its = last or record('members', id)[member] == process and not rules.has_yielded(id, member)
      if its and record('request', id).state ~= 'ended' then rules.finish(id, 'holder_died', reason) end
    end
  end
  due('run|' .. run, pool + FORGET_RUN)
end
