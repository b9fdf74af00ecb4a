-- A member's part of a turn ends.
local function given_back_by_all(id, r, s)
  local count = 0
  for _, member in ipairs(rules.members(id)) do
    if rules.has_yielded(id, member, s) then count = count + 1 end
  end
  return count >= tonumber(r.members)
end

-- `given` is '*' or a list of slices. Withdrawing before the turn has begun ends the request for all.
function rules.part(id, member, given)
  local r, m = record('request', id), record('members', id) or {}
  if r.state ~= 'held' then return rules.finish(id, 'cancelled', 'member ' .. member .. ' withdrew') end
  local yielded = given == '*' and '*' or m[member .. '#yielded'] or ''
  for _, s in ipairs(given == '*' and {} or given) do yielded = with(yielded, s) end
  write('members', id, { [member] = m[member] or '-', [member .. '#yielded'] = yielded })
  local left = 0
  for _, s in ipairs(rules.live(r)) do
    if not rules.has_yielded(id, member, s) then left = left + 1 end
    if given_back_by_all(id, r, s) then
      write('request', id, { gone = with(r.gone, s) })
      rules.release(s, id)
    end
  end
  if left == 0 then undue('part|' .. id .. '|' .. member) end
  if #rules.live(r) == 0 then rules.finish(id, 'yielded') end
end
