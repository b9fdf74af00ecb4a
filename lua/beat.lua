-- An agent's heartbeat: what its node shows, what it has achieved and seen; and the pool's sweep.
-- KEYS[1] meta
-- ARGV[1] node (name)
-- ARGV[2] agent (boot id:journal@host)
-- ARGV[3] version (text)
-- ARGV[4] silent_ms (ms of silence, up to 60000; 0 only asks whether another agent is heard of)
-- ARGV[5] report (JSON: slices, results, exits, commands, known; with silent_ms 0: ended)
-- OK done: epoch, more, wanted, results, runs
-- OTHER another agent of this node is heard of, so nothing was done: by, heard_ms, beat_ms, epoch
-- SCHEMA the pool belongs to another version: found, expected
-- Idempotent: a result for another fence than the present one is STALE, an exit or command already known changes nothing.
--- @include "base_when_full"
--- @include "names"
--- @include "check_report"
local said = cjson.decode(ARGV[5])
check_names(ARGV[1])
check_report(said)
assert(string.match(ARGV[4], '^%d+$') and tonumber(ARGV[4]) <= MAX_SILENT, 'a silence that is not allowed')
--- @include "begin"
--- @include "other_agent"
--- @include "serves"
--- @include "beat_slice"
--- @include "take_report"
--- @include "take_results"
--- @include "post_command"
--- @include "beat_wanted"
--- @include "beat_runs"
rules.check_life()
local node, refusal = ARGV[1], other_agent(ARGV[1], ARGV[2])
if refusal then return reply(refusal) end
if ARGV[4] == '0' then
  if said.ended and record('node', node) then write('node', node, { agent = false }) end
  return reply({ 'OK' })
end
local was_silent = (record('node', node) or {}).silent
redis.call('SADD', key('nodes'), node)
write('node', node, { beat_ms = num(pool), epoch = meta.epoch, agent = ARGV[2], version = ARGV[3], silent = false })
if was_silent then event('heard', 'node', node) end

for _, s in ipairs(words(record('node', node).slices)) do apart(wake, s, node) end
for s, shown in pairs(said.slices or {}) do
  if apart(serves, s, node) then apart(take_report, s, node, shown) end
end
local results = take_results(node, said.results or {})
for _, gone in ipairs(said.exits or {}) do apart(rules.exit_seen, gone.run, gone.process) end
for _, command in ipairs(said.commands or {}) do apart(post_command, node, command) end
rules.go_on()

local more = redis.call('ZCOUNT', DEADLINES, '-inf', '(' .. num(pool)) > 0
local answer = { 'OK', 'epoch', meta.epoch, 'more', more and '1' or '0', 'wanted', wanted_slices(node, said),
                 'runs', cjson.encode(runs_to_tell(node, said)), 'results', results }
due('node|' .. node, pool + ARGV[4])   -- last: a beat that fails puts nobody's silence off
return reply(answer)
