-- What a part is told after everything that could start has started.
local function renew_deadline(id, r, member)
  if rules.has_yielded(r, member) or r.state == 'ended' then return end
  due('part|' .. id .. '|' .. member, pool + (r.state == 'held' and ARGV[4] or ARGV[5]))
end

local function part_state(answer)
  local r = record('request', answer.id)
  if answer.state == 'LOST' then answer.outcome = 'superseded'; answer.reason = 'Redis lost this turn' end
  if answer.state then return answer end
  answer.state = r.state
  answer.reason = r.reason
  if r.state == 'held' then answer.wanted = rules.somebody_waits(r) and '1' or '0' end
  if r.state == 'ended' then
    answer.state, answer.outcome, answer.state_saved = 'LOST', r.outcome, rules.state_saved(r)
  end
  return answer
end
