local function refuse_join(id, r, member)
  if r.state == 'ended' then return rules.answer(id) end
  if r.slices ~= ARGV[7] or r.members ~= ARGV[6] then
    local missing = r.state == 'gathering' and num(r.members - #words(r.joined)) or '0'
    return { 'MISMATCH', 'missing', missing,
             'reason', 'another member asked for ' .. r.slices .. ' with ' .. r.members .. ' member(s)' }
  end
  if not contains(r.joined, member) and r.state ~= 'gathering' then return { 'LATE' } end
end

-- A place in the pool's one order: pool time in 1/4096 ms, never the same twice, minus what was waited already.
local function place(waited_ms)
  local tick = math.max(pool * 4096, (tonumber(record('meta', '').tick) or 0) + 1)
  write('meta', '', { tick = num(tick) })
  return num(tick - waited_ms * 4096)
end
