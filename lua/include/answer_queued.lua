-- Why a queued request waits: the first of its slices that holds it up.
local function waits_for(s, r)
  local S = record('slice', s) or {}
  local reason = rules.blocked(s, r.run)
  if reason then return reason end
  if S.settling then return s .. ' settles after a restart of Redis' end
  if S.kept then return s .. ' is kept for ' .. S.kept end
  local other = S.request and record('request', S.request)
  return other and s .. ' is ' .. S.state .. ' by ' .. other.job .. ' (run ' .. other.run .. ')'
end

function answers.queued(id, r)
  local position, why = 0, r.later and r.reason
  for _, s in ipairs(words(r.slices)) do
    position = math.max(position, redis.call('ZRANK', key('queue', s), id) or 0)
    why = why or waits_for(s, r)
  end
  local at = position == 0 and redis.call('ZRANGE', DEADLINES, 0, 0, 'WITHSCORES')[2]
  local next_ms = at and num(math.max(at - pool, 1)) or '0'
  return { 'QUEUED', 'position', num(position), 'next_ms', next_ms, 'reason', why or r.reason or '' }
end
