-- How switches on a node have ended, sent at once since somebody waits for it; everything else goes with the next beat.
-- KEYS[1] meta
-- ARGV[1] node (name)
-- ARGV[2] agent (boot id:journal@host)
-- ARGV[3] results (JSON: as a beat reports them)
-- OK done: epoch, results
-- OTHER another agent of this node is heard of, so nothing was done: by, heard_ms
-- SCHEMA the pool belongs to another version: found, expected
-- Idempotent: a result for another fence than the present one is STALE.
--- @include "base_when_full"
--- @include "hold"
--- @include "begin"
--- @include "other_agent"
--- @include "serves"
--- @include "take_results"
local refusal = other_agent(ARGV[1], ARGV[2])
if refusal then return reply(refusal) end
local results = take_results(ARGV[1], cjson.decode(ARGV[3]))
return reply({ 'OK', 'epoch', meta.epoch, 'results', results })
