-- What is stored has been overtaken on a slice by another turn. A turn goes on with its other slices: if its holder had not given
-- this one back, its own renew finds out. Whether a switch had become such a turn, or waits again, is for its members to say:
-- it waits, and meanwhile its other slices are kept for it.
function rules.overtake(s, id, reason)
  local r = record('request', id)
  local live = rules.live(r)
  if #live < 2 then return rules.finish(id, 'superseded', reason) end
  if r.state == 'held' then
    write('request', id, { gone = with(r.gone, s) })
    rules.release(s, id, true)
    return request_event('given_back', r, 'slice', s)
  end
  rules.requeue(id, reason)
  for _, other in ipairs(live) do
    if other ~= s then rules.keep(other, id) end
  end
end
