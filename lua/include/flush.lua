-- A script's changes get into Redis: the records, then what is told of them.
local function send(entry)
  local done = redis.pcall(unpack(entry, 1, entry.n))
  if type(done) ~= 'table' then return end
  -- Nobody can ever write to such a stream again, and nothing may fail for it.
  if string.find(done.err, 'last possible ID') or string.find(done.err, 'WRONGTYPE') then redis.call('DEL', STREAM) end
  redis.call(unpack(entry, 1, entry.n))
end

local function flush()
  store()
  local list = news
  news = {}
  for _, entry in ipairs(list) do apart(send, entry) end
end
