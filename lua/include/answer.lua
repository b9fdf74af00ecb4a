-- Where a request stands, as `acquire` replies it.
local function unsettled(r)
  for _, s in ipairs(rules.live(r)) do
    if (record('slice', s) or {}).settling then return s end
  end
end

local answers = {}

--- @include "answer_held"

function answers.switching(_, r)
  for _, s in ipairs(rules.live(r)) do
    local reason = rules.blocked(s, r.run)
    if reason then return { 'SWITCHING', 'reason', reason, 'slice', s } end
  end
  return { 'SWITCHING', 'reason', '' }
end

function answers.gathering(_, r)
  return { 'GATHERING', 'missing', num(r.members - #words(r.joined)), 'joined', r.joined or '' }
end

function answers.ended(_, r)
  local newest = (record('run', r.run) or {})['newest:' .. r.lane] or r.k
  return { 'ENDED', 'ended', r.outcome, 'reason', r.reason or '', 'newest', newest }
end
--- @include "answer_queued"
