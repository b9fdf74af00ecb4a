-- Whether it is Redis that refuses (no memory, no rights, a replica): by the error's first word. Before Redis 7 the place in the
-- script comes first.
local function refused(why)
  local text = string.gsub(why, '^[@=]%S+ %-?%d+: %-?', '')
  local code = string.match(text, '^(%u+) ')
  return code and code ~= 'ERR' and code ~= 'WRONGTYPE' or string.find(text, 'ACL failure', 1, true)
         or string.find(text, 'The user executing', 1, true)
end

-- What is done about one of many fails for itself alone, since somebody may have written records that make no sense: its result,
-- or nil and why. What Redis refuses fails the call.
local function apart(f, ...)
  local ok, result = pcall(f, ...)
  if ok then return result end
  local why = type(result) == 'table' and result.err or tostring(result)
  if refused(why) then error(result, 0) end
  return nil, why
end
