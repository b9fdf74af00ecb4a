-- What a node reports of a slice is kept, heals what it can heal, and may settle the slice or raise its fence.
local function take_report(s, node, shown)
  local S = record('slice', s)
  local why = S.blocked and rules.blocks(s)[node]
  if not (sane(S, shown.top) and sane(S, shown.fence)) then
    local reason = 'node ' .. node .. ' reports a fence that cannot be: ' .. tostring(shown.top)
    if not why or why.kind ~= 'fence' then rules.block(s, node, { kind = 'fence', reason = reason }) end
    return
  end
  local gone = why and why.kind == 'evict' and why.run ~= '' and not shows(shown.loaded, why.run)
  if why and (why.kind == 'fence' or gone) then
    rules.block(s, node, nil)
    write('slice', s, { ['tries:' .. node] = false })
  end
  local text = cjson.encode({ run = shown.run, lane = shown.lane, k = num(shown.k), fence = num(shown.fence),
                              top = num(shown.top), doing = shown.doing, loaded = shown.loaded, saved = shown.saved,
                              devices = shown.devices, progress = shown.progress })
  if record('node', node)['report:' .. s] ~= text then write('node', node, { ['report:' .. s] = text }) end
  if S.settling then
    write('slice', s, { ['beat:' .. node] = shown.doing == '' and text })
    rules.settle(s)
  end
  reseed(s, record('slice', s), shown.top)
end
