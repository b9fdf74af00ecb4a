-- Views for `status`, in JSON; slicelock/picture.py reads them. `view` returns facts, and what is in JSON already.
local function encode_view(view, ...)
  local facts, more = view(...)
  local text = cjson.encode(facts)
  return more and string.sub(text, 1, -2) .. more .. '}' or text
end

-- Of a record that makes no sense: its name, and why.
local function show(view, name, ...)
  local text, why = apart(encode_view, view, name, ...)
  return text or cjson.encode({ name = name, senseless = string.gsub(why, '^user_script:%d+: ', '') .. '' })
end

local function array(texts) return '[' .. table.concat(texts, ',') .. ']' end
