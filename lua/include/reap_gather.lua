-- Of a re-asserted turn, every member has to come back.
function on_due.gather(id)
  local r = record('request', id)
  if not r or r.state == 'ended' or #words(r.joined) >= tonumber(r.members) then return end
  if pool < quiet_until() then return due('gather|' .. id, quiet_until()) end
  rules.finish(id, 'expired', 'its other members were not heard of in time')
end
