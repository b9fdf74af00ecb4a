-- What every mutating script does first: check the schema, advance pool time, notice a new epoch, reap.
local EPOCH_PATIENCE, MAX_STEP = 2000, 5000   -- ms
raw = read_time()
local meta = record('meta') or {}
if meta.schema and meta.schema ~= '1' then return { 'SCHEMA', 'found', meta.schema, 'expected', '1' } end

local step = raw - (tonumber(meta.time_ms) or raw)
local steady = step >= 0 and step <= MAX_STEP
pool = (tonumber(meta.pool_ms) or 0) + (steady and step or 0)
local life = server_run_id()
local reborn = meta.run_id and meta.run_id ~= life
write('meta', nil, { schema = '1', time_ms = num(raw), pool_ms = num(pool), run_id = life,
                     epoch = num((tonumber(meta.epoch) or 1) + (reborn and 1 or 0)) })
if not steady then event('clock', { step_ms = num(step) }) end

if reborn then
  write('meta', nil, { quiet_until = num(pool + rules.lease()) })
  event('epoch', { epoch = record('meta').epoch, run_id = life })
  for _, s in ipairs(redis.call('SMEMBERS', key('slices'))) do rules.unsettle(s, EPOCH_PATIENCE) end
end
rules.reap()
