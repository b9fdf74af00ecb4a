-- Results of switches, as a node reports them.
local function take_result(node, result)
  local s, S = result.slice, record('slice', result.slice)
  if not serves(s, node) or S.settling or S.state ~= 'switching' or tonumber(S.fence) ~= result.fence then return 'STALE' end
  local id = S.request
  request_event(result.outcome == 'READY' and 'ready' or 'failed', record('request', id), 'slice', s, 'node', node,
    'fence', S.fence, 'reason', result.reason, 'bytes', num(result.bytes or 0), 'seconds', tostring(result.seconds or 0),
    'steps', result.steps and cjson.encode(result.steps), 'busy', result.busy and tostring(result.busy))
  if result.outcome ~= 'READY' then rules.switch_failed(s, node, id, result); return 'OK' end
  redis.call('SADD', key('ready', s), node)
  write('slice', s, { ['tries:' .. node] = false, admitted = S.fence })
  if result.moved then write('request', id, { moved = '1' }) end
  rules.try_hold(id, record('request', id))
  return 'OK'
end

local function take_results(node, list)
  for i, result in ipairs(list) do list[i] = apart(take_result, node, result) or 'STALE' end
  return #list > 0 and cjson.encode(list) or '[]'
end
