-- Hashes as Lua tables: each is read once per script. An empty value is none.
local records = {}

local function fetch(full)
  local flat, fields = redis.call('HGETALL', full), {}
  for i = 1, #flat, 2 do
    if flat[i + 1] ~= '' then fields[flat[i]] = flat[i + 1] end
  end
  records[full] = flat[1] and fields or false
  return records[full]
end

-- The fields of a hash, nil when it is not there.
local function record(kind, name)
  local full = key(kind, name)
  local fields = records[full]
  if fields == nil then fields = fetch(full) end
  return fields or nil
end

-- What a pool always has; set by `begin`.
local meta
--- @include "changes"
