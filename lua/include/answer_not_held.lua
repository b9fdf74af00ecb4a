-- Where a request stands that waits, or has ended.
local answers = {}

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

function rules.answer_not_held(id, r) return answers[r.state](id, r) end
