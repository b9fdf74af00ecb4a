-- Forgets a slice that is not in use, or a node that has none.
-- KEYS[1] meta
-- ARGV[1] kind (slice or node)
-- ARGV[2] name (name)
-- OK it is not known any more
-- IN_USE it is in use: reason
-- NO_SUCH_SLICE there is no slice of that name
-- NO_SUCH_NODE there is no node of that name
-- SCHEMA the pool belongs to another version: found, expected
-- Idempotent: what is not known is NO_SUCH_SLICE or NO_SUCH_NODE.
--- @include "base"
--- @include "begin"
--- @include "in_use"
--- @include "leave_node"
local kind, name = ARGV[1], ARGV[2]
local it = record(kind, name)
if not it then return reply({ kind == 'node' and 'NO_SUCH_NODE' or 'NO_SUCH_SLICE' }) end

if kind == 'node' then
  if it.slices then return reply({ 'IN_USE', 'reason', 'slices ' .. it.slices .. ' have it' }) end
  redis.call('SREM', key('nodes'), name)   -- first: who may not do this, does nothing
  erase('node', name)
  undue('node|' .. name)
  return reply({ 'OK' })
end

local reason = in_use(name)
if reason then return reply({ 'IN_USE', 'reason', reason }) end
redis.call('SREM', key('slices'), name)    -- first: who may not do this, does nothing
for _, node in ipairs(words(it.nodes)) do leave_node(name, node) end
erase('slice', name)
redis.call('DEL', key('ready', name), key('queue', name))
redis.call('ZREM', DEADLINES, 'settle|' .. name, 'kept|' .. name, 'retry|' .. name)
event('forgotten', 'slice', name)
return reply({ 'OK' })
