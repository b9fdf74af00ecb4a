-- Where a request stands, as `acquire` replies it. Without agents, the lease alone guards a turn that has begun: its holder
-- keeps a deadline of its own.
function rules.answer(id)
  local r = record('request', id)
  if r.state ~= 'held' then return rules.answer_not_held(id, r) end
  rules.check_life()
  local fences, agentless = {}, '0'
  for _, s in ipairs(rules.live(r)) do
    local S = record('slice', s) or {}
    if S.settling then return { 'SWITCHING', 'reason', s .. ' settles after a restart of Redis', 'slice', s } end
    if not S.nodes then agentless = '1' end
    fences[s] = r['fence:' .. s]
  end
  return { 'HELD', 'fences', cjson.encode(fences), 'lease_ms', r.lease_ms, 'moved', r.moved or '0', 'agentless', agentless }
end
