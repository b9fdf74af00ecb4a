-- Deadlines of slices: it may settle, is kept no longer, is to be looked through further, or an eviction or a request is tried
-- again.
function on_due.settle(s)
  rules.check_life()
  rules.settle(s)
end

function on_due.kept(s)
  if record('slice', s) and record('slice', s).kept then rules.unkeep_slice(s) end
end

function on_due.scan(what)
  local s, from = string.match(what, '^(.+)|(%d+)$')
  touched[s] = touched[s] or tonumber(from)
end

function on_due.retry(s)
  local S = record('slice', s)
  for node, why in pairs(S and S.blocked and rules.blocks(s) or {}) do
    local at = tonumber(why['until'])
    if at and at > pool then due('retry|' .. s, at) elseif at then rules.block(s, node, nil) end
  end
end

function on_due.later(id)
  local r = record('request', id)
  if not r then return end
  write('request', id, { later = false })
  for _, s in ipairs(words(r.slices)) do touched[s] = 0 end
end
