-- Lets nothing new start on a slice, or lets it go on. Turns and switches under way come to their own end.
-- KEYS[1] meta
-- ARGV[1] slice (name)
-- ARGV[2] draining (1 or 0)
-- ARGV[3] why (text)
-- OK it is as asked: was_draining
-- NO_SUCH_SLICE there is none of that name
-- SCHEMA the pool belongs to another version: found, expected
-- Idempotent: what is as asked already stays as it is.
--- @include "base"
--- @include "begin"
local s, ALL_NODES = ARGV[1], '*'
if not record('slice', s) then return reply({ 'NO_SUCH_SLICE' }) end
local reason = ARGV[2] == '1' and s .. ' is draining' .. (ARGV[3] ~= '' and ': ' .. ARGV[3] or '') or nil
local known = rules.blocks(s)[ALL_NODES]
-- Where no reason is given, the first one's stays.
if not (known and reason and ARGV[3] == '') and reason ~= (known or {}).reason then
  rules.block(s, ALL_NODES, reason and { kind = 'drain', reason = reason })
end
return reply({ 'OK', 'was_draining', known and '1' or '0' })
