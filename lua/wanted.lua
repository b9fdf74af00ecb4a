-- What is wanted of a node on one of its slices; changes nothing.
-- KEYS[1] meta
-- ARGV[1] node (name)
-- ARGV[2] slice (name)
-- OK epoch, wanted: as a beat answers it, of this slice
-- SCHEMA the pool belongs to another version: found, expected
-- Idempotent: it only reads. Whether it is still so when something is done about it, the result's answer tells.
--- @include "keys"
--- @include "lists"
--- @include "records"
--- @include "apart"
--- @include "serves"
--- @include "beat_wanted"
meta = record('meta') or {}
if meta.schema and meta.schema ~= '1' then return { 'SCHEMA', 'found', meta.schema, 'expected', '1' } end
local wanted = wanted_slices(ARGV[1], { slices = { [ARGV[2]] = true } })
return { 'OK', 'epoch', meta.epoch or '1', 'wanted', wanted }
