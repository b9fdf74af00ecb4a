-- What every mutating script does first: check the schema, advance pool time, reap. Rules that it needs are included before it.
--- @include "chapters"
--- @include "turn_page"
raw = read_time()
now = num(raw)
meta = record('meta') or {}
if meta.schema and meta.schema ~= '1' then return { 'SCHEMA', 'found', meta.schema, 'expected', '1' } end

local step = raw - (meta.time_ms or raw)
local steady = step >= 0 and step <= MAX_STEP
pool = (meta.pool_ms or 0) + (steady and step or 0)
local pool_ms = num(pool)
write('meta', nil, { time_ms = now, pool_ms = pool_ms })
meta = record('meta')
if not meta.schema then write('meta', nil, { schema = '1', epoch = '1' }) end
if not steady then event('clock', 'step_ms', num(step)) end
if told_life ~= meta.run_id or told_epoch > tonumber(meta.epoch) then rules.check_life() end

local overdue = redis.call('ZRANGEBYSCORE', DEADLINES, '-inf', '(' .. pool_ms, 'LIMIT', 0, SCAN)
if overdue[1] then rules.reap(overdue) end  -- written before anything else, which may fail
