-- All changes of records, at once and last, so that an error before leaves them as they were.
local ending = {}

local function remember_for(kind, name, ms) ending[key(kind, name)] = ms end

local function erase(kind, name)
  redis.call('DEL', key(kind, name))
  read[kind][name], changed[kind][name] = false, nil
end

local function save(full, fields)
  local set = {}
  for field, value in pairs(fields) do
    set[#set + 1] = field
    set[#set + 1] = value or ''
  end
  if #set > 0 then redis.call('HSET', full, unpack(set)) end
end

local function flush()
  for kind, records in pairs(changed) do
    for name, fields in pairs(records) do save(key(kind, name), fields) end
  end
  for full, ms in pairs(ending) do redis.call('PEXPIRE', full, ms) end
end
