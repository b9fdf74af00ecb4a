-- The runs that a node has to know, with their processes. A process whose record makes no sense is left out.
--- @include "shallow"
local function process_view(run, p)
  local P = record('process', run .. '/' .. p)
  return P and { uid = P.uid, slices = words(P.slices), hooks = cjson.decode(P.hooks), heard_ms = num(pool - P.heard),
                 command = P.command and cjson.decode(P.command), answer = P.answer and cjson.decode(P.answer) }
end

local function processes(run)
  local list = {}
  for _, p in ipairs(redis.call('SMEMBERS', key('procs', run))) do
    local ok, view = pcall(process_view, run, p)
    list[p] = ok and view and shallow(view) and view or nil
  end
  return list
end

local function runs_to_tell(node, report)
  local list, known = {}, report.known or {}
  local function tell(run)
    local R = run and record('run', run)
    if R and R.rev and R.rev ~= known[run] then list[run] = { rev = R.rev, job = R.job, processes = processes(run) } end
  end
  for s in pairs(report.slices or {}) do
    local S = serves(s, node) and record('slice', s)
    if S and S.request then tell((record('request', S.request) or {}).run) end
  end
  for run in pairs(known) do tell(run) end
  return list
end
