-- What is wanted on each slice of a node.
local function wanted_slice(s, node)
  local S = serves(s, node) and record('slice', s)
  local r = S and S.request and record('request', S.request) or {}
  return cjson.encode(S and { known = '1', state = S.state, fence = S.fence, settling = S.settling and '1' or '0',
                              request = S.request, run = r.run, job = r.job, lane = r.lane, k = r.k,
                              settings = S.settings } or { known = '0' })
end

-- In JSON; without a slice whose record makes no sense.
local function wanted_slices(node, report)
  local list = {}
  for s in pairs(report.slices or {}) do
    local text = apart(wanted_slice, s, node)
    if text then list[#list + 1] = cjson.encode(s) .. ':' .. text end
  end
  return '{' .. table.concat(list, ',') .. '}'
end
