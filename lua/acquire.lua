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
-- HELD the turn has begun: fences, lease_ms, moved
-- SWITCHING it is granted, its nodes are switching: reason
-- QUEUED it waits: position, next_ms, reason
-- GATHERING members are missing: missing, joined
-- BUSY it cannot start at once and was not to wait; it has ended
-- MISMATCH another member asked for something else: reason
-- LATE it has started without this member
-- TAKEN another live process is this member: by, heard_ms
-- QUEUE_FULL a queue has reached its limit: slice
-- NO_SUCH_SLICE a slice is not declared: slice
-- ENDED it is over: ended, reason, newest
-- RUN_LOST the run's state on a slice is lost: slice, reason
-- SCHEMA the pool belongs to another version: found, expected
-- Idempotent: the request's id is the turn's number; a repetition gets the present state.
--- @include "all"
--- @include "answer"
--- @include "acquire_checks"
local run, job, lane, k, member, process = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[8]
local id = run .. '/' .. lane .. '/' .. num(k)
local refusal = refuse_member(run, lane, member, process) or refuse_slices(run, ARGV[7])
if refusal then rules.go_on(); return refusal end
rules.done(run, lane, k - 1, member)

local r = record('request', id)
refusal = r and refuse_join(id, r, member) or not r and refuse_open(run, lane, k, ARGV[7])
if refusal then rules.go_on(); return refusal end

if not r then
  local now = num(raw - ARGV[11])
  r = { job = job, run = run, lane = lane, k = num(k), slices = ARGV[7], members = ARGV[6], joined = '0', state = 'gathering',
        priority = ARGV[12], phase = ARGV[13], lease_ms = ARGV[9], wait_ms = ARGV[10], asked = now, tick = place(ARGV[11]) }
  write('request', id, r)
  write('run', run, { job = job, ['newest:' .. lane] = num(k), open = with((record('run', run) or {}).open, id) })
  if tonumber(ARGV[9]) > rules.lease() or not record('meta').lease_ms then write('meta', nil, { lease_ms = ARGV[9] }) end
  due('run|' .. run, pool + FORGET_RUN)
  r = record('request', id)
end
--- @include "acquire_join"
rules.fresh = id
rules.go_on()
if ARGV[14] == '1' and r.state == 'queued' then
  local waiting = rules.answer(id)
  rules.finish(id, 'cancelled', 'it was not to wait')
  rules.go_on()
  return { 'BUSY', 'reason', waiting[7] }
end
return rules.answer(id)
