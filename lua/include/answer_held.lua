-- A turn that has begun. Without agents, the lease alone guards it: its holder keeps a deadline of its own.
function answers.held(_, r)
  local fences, agentless = {}, '0'
  for _, s in ipairs(rules.live(r)) do
    fences[s] = r['fence:' .. s]
    if not (record('slice', s) or {}).nodes then agentless = '1' end
  end
  return { 'HELD', 'fences', cjson.encode(fences), 'lease_ms', r.lease_ms, 'moved', r.moved or '0', 'agentless', agentless }
end
