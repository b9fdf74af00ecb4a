-- Lists of words, as a field holds them.
local split = { [''] = {} }

-- The words of a list; the same table for the same text, not to be changed.
local function words(text)
  local list = split[text or '']
  if list then return list end
  list = {}
  if type(text) ~= 'string' then return list end
  for word in string.gmatch(text, '%S+') do list[#list + 1] = word end
  split[text] = list
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
  if text == word then return false end
  local rest = {}
  for _, w in ipairs(words(text)) do if w ~= word then rest[#rest + 1] = w end end
  return #rest > 0 and table.concat(rest, ' ')
end
