-- Whether every node of a request's slices still has the run's device state, loaded or saved; 1 or 0.
function rules.state_saved(r)
  local any = false
  for _, s in ipairs(words(r.slices)) do
    for _, node in ipairs(words((record('slice', s) or {}).nodes)) do
      local report = (record('node', node) or {})['report:' .. s]
      local b = report and cjson.decode(report) or {}
      local here = false
      for _, list in ipairs({ b.loaded or {}, b.saved or {} }) do
        for _, run in ipairs(list) do here = here or run == r.run end
      end
      if not here then return '0' end
      any = true
    end
  end
  return any and '1' or '0'
end
