-- Views of slices, nodes and what gathers, for `status`. Of what is named and has no record, there is the name.
local function slice_view(s, limit)
  local S, nodes, queue = record('slice', s), {}, {}
  if not S then return { name = s } end
  for _, node in ipairs(words(S.nodes)) do nodes[node] = S['devices:' .. node] end
  for i, id in ipairs(redis.call('ZRANGE', key('queue', s), 0, limit - 1)) do queue[i] = request_view(id) end
  return { name = s, state = S.state, fence = S.fence, nodes = nodes, settling = S.settling and '1' or '0',
           blocked = S.blocked and cjson.decode(S.blocked) or {}, kept = S.kept or '', queue = queue,
           holder = S.request and request_view(S.request), queued = num(redis.call('ZCARD', key('queue', s))),
           since_ms = num(raw - (S.since or raw)), settings = S.settings and cjson.decode(S.settings) or {} }
end

local function node_view(node)
  local N, reports = record('node', node) or {}, {}
  for field, value in pairs(N) do
    local s = string.match(field, '^report:(.+)$')
    if s then reports[s] = value end    -- as it is: to read it here and write it again would be a quarter of the work
  end
  return { name = node, beat_age_ms = num(N.beat_ms and pool - N.beat_ms or -1), silent = N.silent or '0',
           version = N.version or '', agent = N.agent or '', slices = N.slices or '', reports = reports }
end

-- Requests whose members have not all joined are in no queue.
local function gathering_views()
  local list = redis.call('SMEMBERS', key('gathering'))
  for i, id in ipairs(list) do list[i] = request_view(id) end
  return list
end
