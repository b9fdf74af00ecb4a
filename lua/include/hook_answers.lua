-- Commands to a process's hooks: posted by an agent's beat, brought by renew, and so answered.
local function pending_commands(run, process)
  local command = (record('process', run .. '/' .. process) or {}).command
  return command and '[' .. command .. ']' or '[]'
end

local function take_answer(run, process, answer)
  local posted = (record('process', run .. '/' .. process) or {}).command
  local command = posted and cjson.decode(posted)
  answer.n = num(answer.n)
  if not command or command.n ~= answer.n or command.what ~= answer.what then return end
  write('process', run .. '/' .. process, { command = false, answer = cjson.encode(answer) })
  rules.new_revision(run)
  hint('node:' .. command.by, 'command ' .. run)
end
