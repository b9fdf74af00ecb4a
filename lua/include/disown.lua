-- A member does not hold the turn that a slice is kept for. Only when each has said so, nobody does; whether that is so.
function rules.disown(s, member, members)
  local disowned = with(record('slice', s).disowned, member)
  write('slice', s, { disowned = disowned })
  if #words(disowned) < tonumber(members) then return false end
  rules.unkeep_slice(s)
  return true
end

-- The run's member is past turn k: it holds neither that turn nor an earlier one.
function rules.disown_until(run, lane, k, member, members)
  for _, s in ipairs(words(meta.keeping)) do
    local its_run, its_lane, its_k = string.match((record('slice', s) or {}).kept or '', '^(.+)/(.+)/(%d+)$')
    if its_run == run and its_lane == lane and tonumber(its_k) <= k then rules.disown(s, member, members) end
  end
end
