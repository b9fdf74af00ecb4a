-- Commands to a process's hooks: posted by an agent's beat, brought by renew, and so answered.
local function pending_commands(run, process)
  local command = (record('procs', run) or {})[process .. '#command']
  return command and '[' .. command .. ']' or '[]'
end

local function take_answer(run, process, answer)
  local posted = (record('procs', run) or {})[process .. '#command']
  local command = posted and cjson.decode(posted)
  answer.n = num(answer.n)
  if not command or command.n ~= answer.n or command.what ~= answer.what then return end
  write('procs', run, { [process .. '#command'] = false, [process .. '#answer'] = cjson.encode(answer) })
  rules.bump(run)
  hint('node:' .. command.by, 'command ' .. run)
end
