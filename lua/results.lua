-- How switches on a node have ended, sent at once since somebody waits for it; everything else goes with the next beat.
-- KEYS[1] meta
-- ARGV[1] node (name)
-- ARGV[2] agent (boot id:journal@host)
-- ARGV[3] results (JSON: as a beat reports them)
-- OK done: epoch, results
-- OTHER another agent of this node is heard of, so nothing was done: by, heard_ms, beat_ms, epoch
-- SCHEMA the pool belongs to another version: found, expected
-- Idempotent: a result for another fence than the present one is STALE.
--- @include "base_when_full"
--- @include "names"
--- @include "check_report"
local results = cjson.decode(ARGV[3])
check_names(ARGV[1])
check_results(results)
--- @include "hold"
--- @include "begin"
--- @include "other_agent"
--- @include "serves"
--- @include "take_results"
local refusal = other_agent(ARGV[1], ARGV[2])
if refusal then return reply(refusal) end
return reply({ 'OK', 'epoch', meta.epoch, 'results', take_results(ARGV[1], results) })
