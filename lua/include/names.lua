-- Names come from outside, and lists of them are separated by spaces, ids by slashes: no other may get in. An error here comes
-- before anything is reaped or written.
local function check_names(...)
  for _, name in ipairs({ ... }) do
    assert(#name <= 64 and string.match(name, '^%w[%w._-]*$'), 'a name that is not allowed')
  end
end
