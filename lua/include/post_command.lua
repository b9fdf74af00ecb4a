-- Commands are numbered by fence, so an older one never replaces a newer one. Numbers go as text: JSON would round them.
local function newest_known(procs, p)
  local newest, what = -1, ''
  for _, text in ipairs({ procs[p .. '#answer'] or '{}', procs[p .. '#command'] or '{}' }) do
    local known = cjson.decode(text)
    if tonumber(known.n or -1) >= newest then newest, what = tonumber(known.n or -1), known.what end
  end
  return newest, what
end

local function post_command(node, command)
  local procs, p = record('procs', command.run) or {}, command.process
  if not procs[p] then return end
  local newest, what = newest_known(procs, p)
  if command.n < newest or command.n == newest and command.what == what then return end
  local text = cjson.encode({ n = num(command.n), what = command.what, slice = command.slice, by = node })
  write('procs', command.run, { [p .. '#command'] = text, [p .. '#answer'] = false })
  rules.bump(command.run)
  hint('run:' .. command.run, 'command')
end
