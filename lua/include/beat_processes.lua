-- The processes of a run, as a node learns them. One whose record makes no sense is left out.
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
    list[p] = ok and view and shallow(view) and pcall(cjson.encode, view) and view or nil
  end
  return list
end
