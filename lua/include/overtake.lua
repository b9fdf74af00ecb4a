-- A stored turn that another has overtaken on a slice loses that slice; without the last one it is over. If its holder had
-- not given the slice back, its own renew finds out.
function rules.overtake(s, id, reason)
  local r = record('request', id)
  if r.state ~= 'held' or #rules.live(r) < 2 then return rules.finish(id, 'superseded', reason) end
  write('request', id, { gone = with(r.gone, s) })
  rules.release(s, id, true)
end
