-- Names of keys, and how numbers are written. slicelock/keys.py builds the same names.
local PREFIX = string.sub(KEYS[1], 1, -5)

local function key(kind, name)
  return name and PREFIX .. kind .. ':' .. name or PREFIX .. kind
end

local DEADLINES, STREAM = key('deadlines'), key('events')

-- tostring() would print a fence as 1.8e+15.
local function num(n) return string.format('%.0f', n) end
