-- Slices kept for a turn that the nodes show and Redis does not know.
function rules.keep(s, id)
  write('slice', s, { kept = id })
  write('meta', nil, { keeping = with(meta.keeping, s) })
  due('kept|' .. s, pool + rules.lease())
  event('kept', 'slice', s, 'request', id)
end

function rules.unkeep_slice(s)
  write('slice', s, { kept = false })
  write('meta', nil, { keeping = without(meta.keeping, s) })
  undue('kept|' .. s)
  touched[s] = 0
end

-- The run's member is past turn k, so nothing is kept for that turn or an earlier one.
function rules.unkeep(run, lane, k)
  for _, s in ipairs(words(meta.keeping)) do
    local its_run, its_lane, its_k = string.match(record('slice', s).kept, '^(.+)/(.+)/(%d+)$')
    if its_run == run and its_lane == lane and tonumber(its_k) <= k then rules.unkeep_slice(s) end
  end
end
