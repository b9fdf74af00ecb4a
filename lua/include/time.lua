-- The server's clock and identity: the only place that asks for them. Both are read once per script.
local function read_time()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- A restarted or promoted server has another run id. Whoever may not ask for it must not decide anything, since others would
-- take its answer for another server's; a stand-in for a server that has no INFO in scripts has one life. (A pattern would be
-- tried at each of INFO's thousand characters.)
local function server_run_id()
  local info = redis.pcall('INFO', 'server')
  if type(info) == 'table' and not string.find(info.err, 'unknown command', 1, true) then redis.call('INFO', 'server') end
  local _, at = string.find(type(info) == 'string' and info or '', 'run_id:', 1, true)
  return at and string.match(info, '^%w+', at + 1) or 'none'
end
