-- What the nodes of a settling slice have said.
local function reports(S)
  local list = {}
  for _, node in ipairs(words(S.nodes)) do
    if not S['beat:' .. node] then return nil end
    local b = cjson.decode(S['beat:' .. node])
    b.fence, b.top = tonumber(b.fence), tonumber(b.top)
    list[#list + 1] = b
  end
  return list
end

-- The turn that all nodes show as the latest grant, if they agree on one.
local function shown_by_all(list, top)
  local first = list[1]
  for _, b in ipairs(list) do
    if b.run == '' or b.fence ~= top or b.run ~= first.run or b.lane ~= first.lane or b.k ~= first.k then return nil end
  end
  return first and first.run .. '/' .. first.lane .. '/' .. first.k
end

local function top_fence(S, list)
  local top, shown, r = tonumber(S.fence) or 0, true, S.request and record('request', S.request)
  for _, b in ipairs(list) do
    shown = shown and not (r and (b.run ~= r.run or b.fence ~= tonumber(S.fence)))
    top = math.max(top, b.top)
  end
  return top, shown
end
