-- One consistent picture of the pool, or of one slice; changes nothing.
-- KEYS[1] meta
-- ARGV[1] slice (name; empty: all)
-- ARGV[2] queue_limit (number of waiting requests shown for a slice)
-- ARGV[3] focus (slice of which twenty times as many are shown; empty: none)
-- OK picture (JSON)
-- NO_SUCH_SLICE there is none of that name
-- SCHEMA the pool belongs to another version: found, expected
-- Idempotent: it only reads.
--- @include "keys"
--- @include "lists"
--- @include "limits"
--- @include "time"
--- @include "records"
--- @include "apart"
--- @include "tell"
--- @include "life"
--- @include "slices"
--- @include "requests"
--- @include "free"
--- @include "answer"
--- @include "answer_not_held"
--- @include "status_view"
--- @include "status_request"
--- @include "status_slice"
raw = read_time()
now = num(raw)
meta = record('meta') or {}
if meta.schema and meta.schema ~= '1' then return { 'SCHEMA', 'found', meta.schema, 'expected', '1' } end
pool = tonumber(meta.pool_ms) or 0
if ARGV[1] ~= '' and not record('slice', ARGV[1]) then return { 'NO_SUCH_SLICE' } end

local names = ARGV[1] ~= '' and { ARGV[1] } or redis.call('SMEMBERS', key('slices'))
table.sort(names)
local slices = {}
for i, s in ipairs(names) do slices[i] = show(view_slice, s, ARGV[2] * (s == ARGV[3] and 20 or 1)) end

local nodes = redis.call('SMEMBERS', key('nodes'))
table.sort(nodes)
for i, node in ipairs(nodes) do nodes[i] = show(view_node, node) end
local now_in_json = '"epoch":' .. cjson.encode(meta.epoch or '1') .. ',"now_ms":"' .. now .. '"'
return { 'OK', 'picture', '{' .. now_in_json .. ',"slices":' .. array(slices) .. ',"nodes":' .. array(nodes)
                          .. ',"gathering":' .. gathering_views() .. '}' }
