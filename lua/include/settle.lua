--- @include "settle_reports"
--- @include "overtake"
-- One slice settles.
function rules.settle(s)
  local S = record('slice', s)
  local list = S and S.settling and reports(S)
  if not list then return end
  local top, shown = top_fence(S, list)
  local unused = #list > 0 and top == 0            -- no node has ever admitted a run here
  if pool < tonumber(S.settling) and not unused then return end
  local id, state, grown = S.request, S.state, top > (tonumber(S.fence) or 0)
  local shows = (grown or S.unclaimed) and shown_by_all(list, top)
  shows = (grown or shows == S.unclaimed) and shows      -- what Redis does not know, or has not known since before
  if id and shows == id then       -- it was granted again, under a later fence
    write('request', id, { ['fence:' .. s] = num(top) })
  elseif id and #list > 0 and (grown or (state == 'held' and not shown)) then
    rules.overtake(s, id, 'the nodes of ' .. s .. ' show another turn')
    id = nil
  end
  local changes = { settling = false, fence = num(top), unclaimed = false }
  for _, node in ipairs(words(S.nodes)) do changes['beat:' .. node] = false end
  write('slice', s, changes)
  undue('settle|' .. s)
  event('settled', 'slice', s, 'fence', num(top))
  if id and state == 'switching' then redis.call('DEL', key('ready', s)) end
  if id then hint('run:' .. record('request', id).run, 'look ' .. id) end
  tell_nodes(S, 'grant ' .. s)
  if shows and not id then rules.keep(s, shows) end
  rules.touch_all()
end
