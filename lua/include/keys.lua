-- Names of keys, and how numbers and lists are written. slicelock/keys.py builds the same names.
local PREFIX = string.sub(KEYS[1], 1, -5)

local function key(kind, name)
  return name and PREFIX .. kind .. ':' .. name or PREFIX .. kind
end

-- tostring() would print a fence as 1.8e+15.
local function num(n)
  return string.format('%.0f', n)
end

local function words(text)
  local list = {}
  for word in string.gmatch(text or '', '%S+') do list[#list + 1] = word end
  return list
end

local function contains(text, word)
  return string.find(' ' .. (text or '') .. ' ', ' ' .. word .. ' ', 1, true) ~= nil
end

local function with(text, word)
  if contains(text, word) then return text end
  return (text and text ~= '') and text .. ' ' .. word or word
end

local function without(text, word)
  local kept = {}
  for _, w in ipairs(words(text)) do if w ~= word then kept[#kept + 1] = w end end
  return table.concat(kept, ' ')
end
