-- What is done about one of many fails for itself alone, since somebody may have written records that make no sense: its result,
-- or nil and why. What Redis refuses (no memory, no rights, a replica) fails the call.
local function apart(f, ...)
  local ok, result = pcall(f, ...)
  if ok then return result end
  local why = type(result) == 'table' and result.err or tostring(result)
  local refused = type(result) == 'table' or string.find(why, '@user_script: ', 1, true)     -- the latter: before Redis 7
  if refused and not string.find(why, 'WRONGTYPE', 1, true) then error(result, 0) end
  return nil, why
end
