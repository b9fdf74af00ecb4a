-- The slices that all members have given back are free; without the last one the turn is over.
function rules.give_back(id, r, member, gone, left)
  local before = rules.live(r)
  write('request', id, { gone = gone or false })
  if #rules.live(r) == 0 then return rules.finish(id, 'yielded') end
  if not left then undue('part|' .. id .. '|' .. member) end
  for _, s in ipairs(before) do
    if contains(gone, s) then
      rules.release(s, id)
      request_event('given_back', r, 'slice', s)
    end
  end
end
