-- Deadlines of requests: a member was not heard of, or did not come back, or a switch of several slices is blocked.
function on_due.part(what)
  local id, member = string.match(what, '^(.+)|(.+)$')
  local r = record('request', id)
  if not r or r.state == 'ended' then return end
  if pool < quiet_until() then return due('part|' .. what, quiet_until()) end
  rules.finish(id, 'expired', 'member ' .. member .. ' was not heard of in time')
end

-- Of a re-asserted turn, every member has to come back.
function on_due.gather(id)
  local r = record('request', id)
  if not r or r.state == 'ended' or #words(r.joined) >= tonumber(r.members) then return end
  if pool < quiet_until() then return due('gather|' .. id, quiet_until()) end
  rules.finish(id, 'expired', 'its other members were not heard of in time')
end

function on_due.switch(id)
  local r = record('request', id)
  if not r or r.state ~= 'switching' then return end
  for _, s in ipairs(words(r.slices)) do
    local reason = rules.blocked(s, r.run)
    if reason then return rules.requeue(id, reason) end
  end
end
