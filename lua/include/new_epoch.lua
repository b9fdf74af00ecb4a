-- The longest lease that any client of the pool has asked for, in ms.
function rules.lease() return tonumber(meta.lease_ms) or LEASE end

-- A new life of the primary, or a fence to be forgotten: nothing starts on a slice until its nodes have reported, also which
-- fences they have admitted; an agentless one waits for a lease.
function rules.unsettle(s)
  local S = record('slice', s)
  if not S then return end   -- somebody has removed its record
  local at = pool + (S.nodes and EPOCH_PATIENCE or rules.lease())
  local changes = { settling = num(at) }
  if S.request and not record('request', S.request) then changes.state, changes.request = 'free', false end
  if forgettable(S) then changes.fence = S.admitted or '0' end
  for _, node in ipairs(words(S.nodes)) do changes['beat:' .. node] = false end
  if S.kept then changes.unclaimed = S.kept; rules.unkeep_slice(s) end
  write('slice', s, changes)
  due('settle|' .. s, at)
end

function rules.new_epoch(life)
  local epoch = num(math.max(meta.epoch, told_epoch) + 1)
  write('meta', nil, { epoch = epoch, run_id = life, quiet_until = num(pool + rules.lease()) })
  event('epoch', 'epoch', epoch, 'run_id', life)
  for _, s in ipairs(redis.call('SMEMBERS', key('slices'))) do apart(rules.unsettle, s) end
end
--- @include "settle"
