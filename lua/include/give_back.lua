-- Some slices of a turn are free for others; it goes on with the rest. A member without any is not waited for.
function rules.give_back(id, r, member, back)
  local left = false
  for _, s in ipairs(rules.live(r)) do left = left or not rules.has_yielded(r, member, s) end
  if not left then undue('part|' .. id .. '|' .. member) end
  for _, s in ipairs(back) do
    write('request', id, { gone = with(r.gone, s) })
    rules.release(s, id)
    request_event('given_back', r, 'slice', s)
  end
end
