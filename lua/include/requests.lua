-- Requests. `joined` lists the members, `member:<m>` is each one's process, `yielded:<m>` what it has given back (a list of
-- slices, or * for all), `gone` the slices that all have given back.
function rules.has_yielded(r, member, s)
  local given = r['yielded:' .. member]
  return given ~= nil and (given == '*' or s ~= nil and contains(given, s))
end

-- The slices that a request still has or wants; not to be changed.
function rules.live(r)
  if not r.gone then return words(r.slices) end
  local list = {}
  for _, s in ipairs(words(r.slices)) do
    if not contains(r.gone, s) then list[#list + 1] = s end
  end
  return list
end
