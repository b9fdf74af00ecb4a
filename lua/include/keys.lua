-- Names of keys, and how numbers and lists are written. slicelock/keys.py builds the same names.
local PREFIX = string.sub(KEYS[1], 1, -5)

local function key(kind, name)
  return (name or '') == '' and PREFIX .. kind or PREFIX .. kind .. ':' .. name
end

-- tostring() would print a fence as 1.8e+15.
local function num(n) return string.format('%.0f', n) end

local function words(text)
  local list = {}
  for word in string.gmatch(text or '', '%S+') do list[#list + 1] = word end
  return list
end

local function contains(text, word)
  return text ~= nil and (text == word or string.find(' ' .. text .. ' ', ' ' .. word .. ' ', 1, true) ~= nil)
end

local function with(text, word)
  if contains(text, word) then return text end
  return (text and text ~= '') and text .. ' ' .. word or word
end

-- Without its last word a list is gone.
local function without(text, word)
  local kept = {}
  for _, w in ipairs(words(text)) do if w ~= word then kept[#kept + 1] = w end end
  return #kept > 0 and table.concat(kept, ' ')
end
