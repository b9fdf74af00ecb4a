-- Makes a process of a run known to the agents of its slices, or says that it is gone.
-- KEYS[1] meta
-- ARGV[1] run (name)
-- ARGV[2] job (name)
-- ARGV[3] process (identity)
-- ARGV[4] uid (number)
-- ARGV[5] slices (list)
-- ARGV[6] hooks (JSON list)
-- ARGV[7] gone (1 or 0)
-- OK done, or not done: the identity is no identity, or an agent has seen that process end: lanes
-- SCHEMA the pool belongs to another version: found, expected
-- Idempotent: the process is the key; its facts are replaced.
--- @include "names"
--- @include "shallow"
check_names(ARGV[1])
local decoded, hooks = pcall(cjson.decode, ARGV[6])
assert(decoded and type(hooks) == 'table' and (hooks[1] or not next(hooks)) and shallow(hooks), 'hooks that make no sense')
--- @include "base"
--- @include "begin"
local run, process, nothing = ARGV[1], ARGV[3], { 'OK', 'lanes', '{}' }
if #process > 200 or not string.match(process, '^[%w:._-]+$') then return reply(nothing) end   -- keys are made of it
local name = run .. '/' .. process
if record('gone', name) then return reply(nothing) end
if ARGV[7] == '1' then
  rules.exited(run, process, 'its process has ended')
  return reply(nothing)
end

local P = record('process', name)
if not P or P.uid ~= ARGV[4] or (P.slices or '') ~= ARGV[5] or P.hooks ~= ARGV[6] then
  write('process', name, { uid = ARGV[4], slices = ARGV[5], hooks = ARGV[6] })
  redis.call('SADD', key('procs', run), process)
  rules.new_revision(run)
  for _, s in ipairs(words(ARGV[5])) do
    for _, node in ipairs(words((record('slice', s) or {}).nodes)) do hint('node:' .. node, 'run ' .. run) end
  end
end
write('process', name, { heard = num(pool) })
write('run', run, { job = ARGV[2] })
due('run|' .. run, pool + FORGET_RUN)

local lanes = {}
for field, k in pairs(record('run', run)) do
  local lane = string.match(field, '^newest:(.+)$')
  if lane then
    local r = record('request', run .. '/' .. lane .. '/' .. k) or { state = 'ended' }
    lanes[lane] = { k = k, state = r.state, joined = words(r.joined) }
  end
end
return reply({ 'OK', 'lanes', cjson.encode(lanes) })
