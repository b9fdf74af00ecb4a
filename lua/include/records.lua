-- Hashes as Lua tables: each is read once per script, and every write goes to the table and to Redis.
local read = {}

local function record(kind, name)
  local full = key(kind, name)
  if read[full] == nil then
    local flat, fields = redis.call('HGETALL', full), {}
    for i = 1, #flat, 2 do fields[flat[i]] = flat[i + 1] end
    read[full] = next(fields) and fields or false
  end
  return read[full] or nil
end

-- Values are strings; false removes a field. The first write of a record creates it.
local function write(kind, name, changes)
  local full, set, gone = key(kind, name), {}, {}
  local fields = record(kind, name) or {}
  for field, value in pairs(changes) do
    fields[field] = value or nil
    if value then set[#set + 1] = field; set[#set + 1] = value else gone[#gone + 1] = field end
  end
  if #set > 0 then redis.call('HSET', full, unpack(set)) end
  if #gone > 0 then redis.call('HDEL', full, unpack(gone)) end
  read[full] = next(fields) and fields or false
end

local function erase(kind, name)
  redis.call('DEL', key(kind, name))
  read[key(kind, name)] = false
end
