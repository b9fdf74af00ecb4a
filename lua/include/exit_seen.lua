-- An agent has seen it end: a `register` that was under way does not bring it back.
function rules.exit_seen(run, process)
  local name = run .. '/' .. process
  if not record('process', name) then return end
  write('gone', name, { at = now })
  lives[key('gone', name)] = REMEMBER
  rules.exited(run, process, 'its process has ended')
end
