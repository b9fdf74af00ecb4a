-- What becomes of a switch that has failed, by the step that did.
local on_failure = {}

function on_failure.evict(s, node, id, result)
  rules.block_eviction(s, node, result.run, result.reason)
  rules.requeue(id, result.reason)
end

function on_failure.restore(s, _, id, result)
  write('run', record('request', id).run, { ['lost:' .. s] = result.reason })
  rules.finish(id, 'failed', result.reason)
end

-- The request alone cannot be served now: its run does not fit, or does not come back. It waits 2, 4, 8 … 60 s and holds
-- nobody up.
function on_failure.later(_, _, id, result)
  local tries = (tonumber(record('request', id).tries) or 0) + 1
  write('request', id, { tries = num(tries), later = '1' })
  due('later|' .. id, pool + math.min(1000 * 2 ^ tries, MAX_RETRY))
  rules.requeue(id, result.reason)
end

function on_failure.refused(_, _, id, result) rules.finish(id, 'failed', result.reason) end

function rules.switch_failed(s, node, id, result) on_failure[result.what](s, node, id, result) end
