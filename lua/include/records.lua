-- Hashes as Lua tables: each is read once per script, and written once, by `flush`.
local by_kind = { __index = function(t, kind) t[kind] = {}; return t[kind] end }
local read, changed = setmetatable({}, by_kind), setmetatable({}, by_kind)

local function fetch(kind, name)
  local flat, fields = redis.call('HGETALL', key(kind, name)), {}
  for i = 1, #flat, 2 do fields[flat[i]] = flat[i + 1] end
  read[kind][name] = next(fields) and fields or false
  return read[kind][name]
end

local function record(kind, name)
  local known = read[kind][name]
  if known == nil then known = fetch(kind, name) end
  return known or nil
end

-- Values are strings; false removes a field, and a record without fields does not exist.
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
