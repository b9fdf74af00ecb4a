-- Views of slices, nodes and what gathers, for `status`. What is JSON in a record is told as it is: to read it here and write it
-- again would be a quarter of the work, and fail for what makes no sense.
local function view_slice(s, limit)
  local S, nodes, queue = assert(record('slice', s), 'it is not there, or no record'), {}, {}
  assert(type(S.nodes or '') == 'string', 'its nodes are no list')
  for _, node in ipairs(words(S.nodes)) do nodes[node] = S['devices:' .. node] end
  for i, id in ipairs(redis.call('ZRANGE', key('queue', s), 0, limit - 1)) do queue[i] = show(view_request, id) end
  local holder = S.request and ',"holder":' .. show(view_request, S.request) or ''
  return { name = s, state = S.state, fence = S.fence, nodes = nodes, settling = S.settling and '1' or '0',
           blocked = S.blocked or '{}', kept = S.kept or '', queued = num(redis.call('ZCARD', key('queue', s))),
           since_ms = num(raw - (S.since or raw)), settings = S.settings or '{}' }, holder .. ',"queue":' .. array(queue)
end

local function view_node(node)
  local N, reports = record('node', node) or {}, {}
  for field, value in pairs(N) do
    local s = string.match(field, '^report:(.+)$')
    if s then reports[s] = value end
  end
  return { name = node, beat_age_ms = num(N.beat_ms and pool - N.beat_ms or -1), silent = N.silent or '0',
           version = N.version or '', agent = N.agent or '', slices = N.slices or '', reports = reports }
end

-- Requests whose members have not all joined are in no queue.
local function gathering_views()
  local list = redis.call('SMEMBERS', key('gathering'))
  for i, id in ipairs(list) do list[i] = show(view_request, id) end
  return array(list)
end
