-- The test's clock and server identity, in place of lua/include/time.lua: from keys that the test sets, else the real ones.

local test_prefix = string.sub(KEYS[1], 1, -5) .. 'test:'

local function read_time()
  local set = redis.call('GET', test_prefix .. 'clock')
  if set then return tonumber(set) end
  local now = redis.call('TIME')
  return tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
end

local function server_run_id()
  return redis.call('GET', test_prefix .. 'run_id') or string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
end
