-- Commands are numbered by fence, so an older one never replaces a newer one. Numbers go as text: JSON would round them.
local function newest_known(P)
  local newest, what = -1, ''
  for _, text in ipairs({ P.answer or '{}', P.command or '{}' }) do
    local known = cjson.decode(text)
    if tonumber(known.n or -1) >= newest then newest, what = tonumber(known.n or -1), known.what end
  end
  return newest, what
end

local function post_command(node, command)
  local name = command.run .. '/' .. command.process
  local P = record('process', name)
  if not P then return end
  local newest, what = newest_known(P)
  if command.n < newest or command.n == newest and command.what == what then return end
  local text = cjson.encode({ n = num(command.n), what = command.what, slice = command.slice, by = node })
  write('process', name, { command = text, answer = false })
  rules.new_revision(command.run)
  hint('run:' .. command.run, 'command')
end
