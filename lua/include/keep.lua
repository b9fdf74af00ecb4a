-- Slices kept for a turn that may be running, though Redis does not know it as held.
function rules.keep(s, id)
  write('slice', s, { kept = id, disowned = false })
  write('meta', nil, { keeping = with(meta.keeping, s) })
  due('kept|' .. s, pool + rules.lease())
  event('kept', 'slice', s, 'request', id)
end

function rules.unkeep_slice(s)
  write('slice', s, { kept = false, disowned = false })
  write('meta', nil, { keeping = without(meta.keeping, s) })
  undue('kept|' .. s)
  touched[s] = 0
end

function rules.unkeep(id)
  for _, s in ipairs(words(meta.keeping)) do
    if (record('slice', s) or {}).kept == id then rules.unkeep_slice(s) end
  end
end
--- @include "disown"
