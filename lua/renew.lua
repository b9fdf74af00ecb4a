-- The heartbeat of everything one process has; brings turns back that Redis lost, and carries hook commands and answers.
-- KEYS[1] meta
-- ARGV[1] run (name)
-- ARGV[2] job (name)
-- ARGV[3] process (identity)
-- ARGV[4] lease_ms (ms)
-- ARGV[5] wait_ms (ms)
-- ARGV[6] report (JSON: parts, done, answers)
-- OK parts (JSON list: the state of each), commands (JSON list), registered (1 or 0), epoch
-- SCHEMA the pool belongs to another version: found, expected
-- Idempotent: it says what is, and changes only what differs.
--- @include "names"
check_names(ARGV[1])
--- @include "base_when_full"
--- @include "done"
--- @include "waiters"
--- @include "begin"
--- @include "reassert_when"
--- @include "claims"
--- @include "restore_slices"
--- @include "restore_turn"
--- @include "missing"
--- @include "reassert"
--- @include "renew_state"
--- @include "renew_part"
--- @include "hook_answers"
rules.check_life()
local run, job, process = ARGV[1], ARGV[2], ARGV[3]
local report = cjson.decode(ARGV[6])

for lane, d in pairs(report.done or {}) do rules.done(run, lane, d.k, d.member, process, d.members, d.gave_up) end

local parts = {}
for i, part in ipairs(report.parts or {}) do
  rules.done(run, part.lane, part.k - 1, part.member, process, part.members)
  parts[i] = renew_part(run, job, process, part)
end
rules.go_on()

local states = {}
for i, part in ipairs(parts) do states[i] = part_state(part) end
for _, answer in ipairs(report.answers or {}) do take_answer(run, process, answer) end

local registered = record('process', run .. '/' .. process) ~= nil
if registered then write('process', run .. '/' .. process, { heard = num(pool) }) end
if record('run', run) then due('run|' .. run, pool + FORGET_RUN) end
return reply({ 'OK', 'epoch', meta.epoch, 'registered', registered and '1' or '0',
               'parts', #states > 0 and cjson.encode(states) or '[]', 'commands', pending_commands(run, process) })
