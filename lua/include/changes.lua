-- Changes of records: in their tables at once, in Redis last, by `flush`, so that an error before leaves the hashes alone.
local changed, lives = {}, {}

-- Values are strings; false clears a field.
local function write(kind, name, changes)
  local full, fields = key(kind, name), record(kind, name) or {}
  local set = changed[full] or { full }
  local n = #set
  for field, value in pairs(changes) do
    if (fields[field] or false) ~= value then
      fields[field] = value or nil
      set[n + 1], set[n + 2] = field, value or ''
      n = n + 2
    end
  end
  records[full], changed[full] = fields, set
end

local function erase(kind, name)
  local full = key(kind, name)
  redis.call('DEL', full)
  records[full], changed[full] = false, nil
end

local function flush()
  for _, set in pairs(changed) do
    if set[2] then redis.call('HSET', unpack(set)) end
  end
  for full, ms in pairs(lives) do redis.call('PEXPIRE', full, ms) end
end
