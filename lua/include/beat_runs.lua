-- The runs that a node has to know, with their processes.
local function processes(run)
  local list = {}
  for field, value in pairs(record('procs', run) or {}) do
    local p, what = string.match(field, '^([^#]+)#?(%a*)$')
    list[p] = list[p] or {}
    if what == 'heard' then list[p].heard_ms = num(pool - value)
    elseif what ~= '' then list[p][what] = cjson.decode(value)
    else for name, fact in pairs(cjson.decode(value)) do list[p][name] = fact end end
  end
  return list
end

local function runs_to_tell(node, report)
  local list, known = {}, report.known or {}
  local function tell(run)
    local R = record('run', run)
    if R and R.rev and R.rev ~= known[run] then list[run] = { rev = R.rev, job = R.job, processes = processes(run) } end
  end
  for s in pairs(report.slices or {}) do
    local S = serves(s, node) and record('slice', s)
    if S and S.request then tell(record('request', S.request).run) end
  end
  for run in pairs(known) do tell(run) end
  return list
end
