-- Gives a request up for all its members, also one that is not known yet or has just begun.
-- KEYS[1] meta
-- ARGV[1] run (name)
-- ARGV[2] job (name)
-- ARGV[3] lane (name)
-- ARGV[4] k (number of the turn)
-- ARGV[5] why (text)
-- CANCELLED it is over, and never starts
-- ALREADY it had ended before
-- SCHEMA the pool belongs to another version: found, expected
-- Idempotent: an ended request stays ended; one not seen yet is remembered as ended.
--- @include "names"
check_names(ARGV[1], ARGV[3])
--- @include "base_when_full"
--- @include "finish"
--- @include "begin"
local run, lane, k = ARGV[1], ARGV[3], tonumber(ARGV[4])
local id = run .. '/' .. lane .. '/' .. num(k)
local r = record('request', id)
local R = record('run', run) or {}
local newest = tonumber(R['newest:' .. lane]) or 0
if meta.keeping then rules.unkeep(id) end
if r and r.state == 'ended' or not r and k <= newest then return reply({ 'ALREADY' }) end
if not r then
  if not record('run', run) then due('run|' .. run, pool + FORGET_RUN) end
  write('run', run, { job = ARGV[2], ['newest:' .. lane] = num(k) })
  write('request', id, { job = ARGV[2], run = run, lane = lane, k = num(k), slices = '', members = '0',
                         state = 'gathering', asked = now })
end
rules.finish(id, 'cancelled', ARGV[5])
return reply({ 'CANCELLED' })
