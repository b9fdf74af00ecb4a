-- The stored turn is over unless the nodes show it or it was re-asserted; a partly yielded one loses this slice only.
local function overtaken(s, id)
  local r = record('request', id)
  for _, member in ipairs(words(r.joined)) do
    if rules.has_yielded(r, member, s) and not rules.has_yielded(r, member) and #rules.live(r) > 1 then
      write('request', id, { gone = with(r.gone, s) })
      return rules.release(s, id, true)
    end
  end
  rules.finish(id, 'superseded', 'the nodes of ' .. s .. ' show another turn')
end
