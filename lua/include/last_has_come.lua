-- With its last member a request enters its queues: whether it does.
function rules.last_has_come(id, r)
  if #words(r.joined) < tonumber(r.members) then return false end
  if r.members ~= '1' then redis.call('SREM', key('gathering'), id) end
  write('request', id, { state = 'queued' })
  return true
end
