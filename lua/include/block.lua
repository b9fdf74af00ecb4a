-- A slice that blocks or heals lets others pass, or holds them up: every free slice is looked at again.
function rules.touch_all()
  for _, s in ipairs(redis.call('SMEMBERS', key('slices'))) do touched[s] = 0 end
end

-- Each node's reason for which a slice is blocked; `why` nil heals.
function rules.block(s, node, why)
  local S = record('slice', s)
  local all = rules.blocks(s)
  if not why and not all[node] then return end
  all[node] = why
  write('slice', s, { blocked = next(all) and cjson.encode(all) or false })
  event(why and 'blocked' or 'healed', 'slice', s, 'node', node, 'reason', why and why.reason, 'kind', why and why.kind)
  rules.touch_all()
  local r = S.state == 'switching' and record('request', S.request)
  if not r or not why or why.kind == 'drain' or #words(r.slices) < 2 then return end
  due('switch|' .. S.request, pool + SWITCH_PATIENCE)
end

-- A run that cannot be evicted: tried again after 2, 4, 8 … 60 s, or when it is gone.
function rules.block_eviction(s, node, run, reason)
  local tries = (tonumber(record('slice', s)['tries:' .. node]) or 0) + 1
  local wait = math.min(1000 * 2 ^ tries, MAX_RETRY)
  write('slice', s, { ['tries:' .. node] = num(tries) })
  rules.block(s, node, { kind = 'evict', run = run, reason = reason, tries = tries, ['until'] = num(pool + wait) })
  due('retry|' .. s, pool + wait)
end
--- @include "failed"
