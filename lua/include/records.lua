-- Hashes as Lua tables: each is read once per script, and written once, by `flush`. An empty value is none.
local by_kind = { __index = function(t, kind) t[kind] = {}; return t[kind] end }
local read, changed = setmetatable({}, by_kind), setmetatable({}, by_kind)

local function fetch(kind, name)
  local flat, fields, any = redis.call('HGETALL', key(kind, name)), {}, false
  for i = 1, #flat, 2 do
    any = true
    if flat[i + 1] ~= '' then fields[flat[i]] = flat[i + 1] end
  end
  read[kind][name] = any and fields
end

local function record(kind, name)
  if read[kind][name] == nil then fetch(kind, name) end
  return read[kind][name] or nil
end

-- Values are strings; false clears a field.
local function write(kind, name, changes)
  local fields, mine = record(kind, name) or {}, changed[kind][name] or {}
  for field, value in pairs(changes) do
    if (fields[field] or false) ~= value then
      fields[field] = value or nil
      mine[field] = value
    end
  end
  read[kind][name], changed[kind][name] = fields, mine
end
