-- Changes of records: in their tables at once, in Redis last, by `flush`, so that an error before leaves what is stored alone.
local changed, lives = {}, {}        -- key → its fields, false: none any more; key → ms that it has to live

-- Values are texts; false or an empty one clears a field.
local function write(kind, name, changes)
  local full, fields = key(kind, name), record(kind, name) or {}
  for field, value in pairs(changes) do
    value = value ~= '' and value or nil
    if fields[field] ~= value then fields[field], changed[full] = value, fields end
  end
  records[full] = fields
end

local function erase(kind, name)
  local full = key(kind, name)
  records[full], changed[full] = false, false
end

local function store()
  for full, fields in pairs(changed) do
    local sound, text = pcall(cjson.encode, fields)   -- what somebody has written that cannot be, such as NaN, stays as it is
    if not fields then redis.call('DEL', full)
    elseif sound and lives[full] then redis.call('SET', full, text, 'PX', lives[full])
    elseif sound then redis.call('SET', full, text, 'KEEPTTL') end
  end
  changed = {}
end
