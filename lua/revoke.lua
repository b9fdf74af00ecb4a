-- Ends a named request for an operator, or puts one that is being switched back into its queues.
-- KEYS[1] meta
-- ARGV[1] request (id)
-- ARGV[2] why (text)
-- ARGV[3] requeue (1 or 0)
-- REVOKED done
-- NOT_SWITCHING nothing was done, since only what is being switched can be put back: state
-- ENDED it had ended before, or is not known: ended
-- SCHEMA the pool belongs to another version: found, expected
-- Idempotent: an ended request stays ended.
--- @include "base"
--- @include "begin"
-- Of a request whose record somebody has removed, names may be left: in the pool's sets, and as a slice's holder.
local function named(id)
  local found = redis.call('SREM', key('gathering'), id) > 0
  local function take_from(s)
    found = redis.call('ZREM', key('queue', s), id) > 0 or (record('slice', s) or {}).request == id or found
    rules.release(s, id, true)
  end
  for _, s in ipairs(redis.call('SMEMBERS', key('slices'))) do apart(take_from, s) end
  rules.go_on()
  return found
end

local id = ARGV[1]
local r = record('request', id)
if not r and named(id) then return reply({ 'REVOKED' }) end
if not r or r.state == 'ended' then
  return reply({ 'ENDED', 'ended', r and r.outcome or 'not known' })
end
if ARGV[3] ~= '1' then
  rules.finish(id, 'revoked', ARGV[2])
elseif r.state == 'switching' then
  rules.requeue(id, ARGV[2])
else
  return reply({ 'NOT_SWITCHING', 'state', r.state })
end
return reply({ 'REVOKED' })
