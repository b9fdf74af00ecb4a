-- What is nested deeper than anything that is told here: JSON of more than 1000 levels can neither be read nor written.
local LEVELS = 32

local function shallow(value, level)
  if type(value) ~= 'table' then return true end
  level = (level or 0) + 1
  for _, inner in pairs(value) do if level > LEVELS or not shallow(inner, level) then return false end end
  return true
end
