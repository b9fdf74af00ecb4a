-- Rules that most calls do not need: defined when the first of them is asked for, since defining them all costs more than
-- many a call does.
local function define()
--- @include "look_everywhere"
--- @include "requeue"
--- @include "keep"
--- @include "block"
--- @include "revision"
--- @include "exit"
--- @include "settle"
--- @include "unsettle"
--- @include "reap"
end

setmetatable(rules, { __index = function(_, name)
  setmetatable(rules, nil)
  define()
  return rules[name]
end })
