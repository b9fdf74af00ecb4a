-- Opens the next chapter when a rule is not defined yet.
local unread = { when_somebody_waits, when_something_ends, when_somebody_asks, seldom }

local function turn_page(_, name)
  local define = table.remove(unread, 1)
  if not unread[1] then setmetatable(rules, nil) end
  define()
  return rules[name]
end
setmetatable(rules, { __index = turn_page })
