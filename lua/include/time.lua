-- The server's clock and identity: the only place that asks for them. Both are read once per script.
local function read_time()
  local now = redis.call('TIME')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end

-- A restarted or promoted server has another run id. A server without INFO in scripts has one life.
local function server_run_id()
  local info = redis.pcall('INFO', 'server')
  return type(info) == 'string' and string.match(info, 'run_id:(%w+)') or 'none'
end
