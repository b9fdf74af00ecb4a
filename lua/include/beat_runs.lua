--- @include "beat_processes"
-- The runs that a node has to know, with their processes. One whose record makes no sense is left out.
local function runs_to_tell(node, report)
  local list, known = {}, report.known or {}
  local function tell(run)
    local R = run and record('run', run)
    if not R or not R.rev or R.rev == known[run] then return end
    local told = { rev = R.rev, job = R.job, processes = processes(run) }
    if pcall(cjson.encode, told) then list[run] = told end
  end
  local function tell_of(s)
    local S = serves(s, node) and record('slice', s)
    if S and S.request then tell((record('request', S.request) or {}).run) end
  end
  for s in pairs(report.slices or {}) do apart(tell_of, s) end
  for run in pairs(known) do apart(tell, run) end
  return list
end
