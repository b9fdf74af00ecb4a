-- Records: keys whose value is an object of texts in JSON, read once per script.
local records = {}

local function fetch(full)
  local text = redis.call('GET', full)
  records[full] = text and cjson.decode(text)
  return records[full]
end

-- The fields of a record, nil when it is not there.
local function record(kind, name)
  local full = key(kind, name)
  local fields = records[full]
  if fields == nil then fields = fetch(full) end
  return fields or nil
end

-- What a pool always has; set by `begin`.
local meta
--- @include "changes"
