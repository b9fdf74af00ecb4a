-- Which of these calls this user may make; none of them is made. Needs Redis 7.0 or Valkey.
-- ARGV: for each call its number of words, then the words.
local told, at = {}, 1
while at <= #ARGV do
  local words = { unpack(ARGV, at + 1, at + tonumber(ARGV[at])) }
  told[#told + 1] = redis.acl_check_cmd(unpack(words)) and 1 or 0
  at = at + #words + 1
end
return told
