local function post_command(node, command)
  local procs, p = record('procs', command.run) or {}, command.process
  if not procs[p] then return end
  local text = cjson.encode({ n = command.n, what = command.what, slice = command.slice, by = node })
  local answered = procs[p .. '#answer'] and cjson.decode(procs[p .. '#answer'])
  if procs[p .. '#command'] == text then return end
  if answered and answered.n == command.n and answered.what == command.what then return end
  write('procs', command.run, { [p .. '#command'] = text, [p .. '#answer'] = false })
  rules.bump(command.run)
  hint('run:' .. command.run, 'command')
end
