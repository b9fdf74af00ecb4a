-- Ends a member's part of a turn, of all or some of its slices; the last member's part ends the turn.
-- KEYS[1] meta
-- ARGV[1] run (name)
-- ARGV[2] lane (name)
-- ARGV[3] k (number of the turn)
-- ARGV[4] member (name)
-- ARGV[5] slices (list; empty: all)
-- ARGV[6] members (number)
-- YIELDED the slices have been given back: waiters
-- PARTIAL this part has ended, other members still have theirs
-- ALREADY it had ended before, or is not known
-- LOST the turn had ended against the holder's will: ended, reason, state_saved
-- SCHEMA the pool belongs to another version: found, expected
-- Idempotent: a part that has ended stays ended.
--- @include "base_when_full"
--- @include "finish"
--- @include "part"
--- @include "begin"
local run, lane, k, member = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local id = run .. '/' .. lane .. '/' .. ARGV[3]
local r = record('request', id)
if ARGV[5] == '' and meta.keeping then rules.disown_until(run, lane, k, member, ARGV[6]) end
if not r then return reply({ 'ALREADY' }) end

if r.state == 'ended' then
  if r.outcome == 'yielded' or r.outcome == 'cancelled' or rules.has_yielded(r, member) then return reply({ 'ALREADY' }) end
  return reply({ 'LOST', 'ended', r.outcome, 'reason', r.reason or '', 'state_saved', rules.state_saved(r) })
end

local asked = ARGV[5] ~= '' and words(ARGV[5]) or words(r.slices)
local fresh = false
for _, s in ipairs(asked) do
  if contains(r.slices, s) and not rules.has_yielded(r, member, s) then fresh = true end
end
if not fresh or not rules.takes_part(r, member) then return reply({ 'ALREADY' }) end
rules.part(id, member, ARGV[5] == '' and '*' or asked)

local waiters, back = 0, true
for _, s in ipairs(asked) do
  waiters = waiters + rules.waiting(s)
  if r.state ~= 'ended' and contains(r.slices, s) and not contains(r.gone, s) then back = false end
end
if not back then return reply({ 'PARTIAL' }) end
return reply({ 'YIELDED', 'waiters', num(waiters) })
