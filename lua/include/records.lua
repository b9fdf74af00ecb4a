-- Records: keys whose value is an object of texts in JSON, read once per script.
local records = {}

-- Whoever may write to Redis may write anything: what is no record of a slice, a request, a run or a node counts as not there.
local function fetch(full)
  local text = redis.pcall('GET', full)
  if type(text) == 'table' and not string.find(text.err, 'WRONGTYPE', 1, true) then error(text, 0) end
  local ok, fields = pcall(cjson.decode, text or 'false')
  assert(ok or full ~= KEYS[1], 'the record meta makes no sense')
  records[full] = ok and type(fields) == 'table' and not fields[1] and fields
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
