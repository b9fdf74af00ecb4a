-- Opens the k-th request of a run and lane, or joins it as a member, and says where it stands.
-- KEYS[1] meta
-- ARGV[1] run (name)
-- ARGV[2] job (name)
-- ARGV[3] lane (name)
-- ARGV[4] k (number of the turn, from 1)
-- ARGV[5] member (name)
-- ARGV[6] members (number)
-- ARGV[7] slices (list)
-- ARGV[8] process (identity)
-- ARGV[9] lease_ms (ms)
-- ARGV[10] wait_ms (ms)
-- ARGV[11] waited_ms (ms)
-- ARGV[12] priority (-10 to 10)
-- ARGV[13] phase (text)
-- ARGV[14] no_wait (1 or 0)
-- HELD the turn has begun: fences, lease_ms, moved, agentless (a slice has no nodes)
-- SWITCHING it is granted, its nodes are switching: reason
-- QUEUED it waits: position, next_ms, reason
-- GATHERING members are missing: missing, joined
-- BUSY it cannot start at once and was not to wait; it has ended
-- MISMATCH another member asked for something else: reason, missing (members, while it gathers)
-- LATE it has started without this member
-- TAKEN another live process is this member: by, heard_ms
-- QUEUE_FULL a queue has reached its limit: slice
-- NO_SUCH_SLICE a slice is not declared: slice
-- ENDED it is over: ended, reason, newest
-- RUN_LOST the run's state on a slice is lost: slice, reason
-- SCHEMA the pool belongs to another version: found, expected
-- Idempotent: the request's id is the turn's number; a repetition gets the present state.
--- @include "names"
check_names(ARGV[1], ARGV[3], ARGV[5])
--- @include "base"
--- @include "done"
--- @include "free"
--- @include "start"
--- @include "answer"
--- @include "last_has_come"
--- @include "begin"
--- @include "acquire_refuse"
--- @include "acquire_refuse_turn"
--- @include "acquire_open"
--- @include "acquire_join"
local run, lane, k, member, process = ARGV[1], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[8]
local id = run .. '/' .. lane .. '/' .. ARGV[4]
local refusal = refuse_member(run, lane, member, process) or refuse_slices(run, ARGV[7])
if refusal then return reply(refusal) end
rules.done(run, lane, k - 1, member, process, ARGV[6])

local r = record('request', id)
refusal = r and refuse_join(id, r, member) or not r and refuse_open(run, lane, k, ARGV[7])
if refusal then return reply(refusal) end
r = r or open(id, run, ARGV[2], lane)
local was = r.state
rules.just_asked = id
join(id, r, member, process)
rules.go_on()

if r.state == 'queued' and ARGV[14] == '1' then
  local waiting = rules.answer(id)
  rules.finish(id, 'cancelled', 'it was not to wait')
  return reply({ 'BUSY', 'reason', waiting[7] })
end
if r.state == 'queued' and was == 'gathering' then
  request_event('queued', r, 'waited_ms', num(raw - r.asked), 'priority', r.priority)
  rules.call_for(r)
end
if r.state ~= 'ended' and not rules.has_yielded(r, member) then
  due('part|' .. id .. '|' .. member, pool + (r.state == 'held' and r.lease_ms or r.wait_ms))
end
return reply(rules.answer(id))
