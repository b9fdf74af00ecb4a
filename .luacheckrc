-- The portable subset of what servers give to scripts; anything else is an error.
stds.script = {
  read_globals = {
    "KEYS", "ARGV",
    redis = {fields = {"call", "pcall"}},
    cjson = {fields = {"encode", "decode", "null"}},
    math = {fields = {"abs", "ceil", "floor", "huge", "max", "min"}},
    table = {fields = {"concat", "insert", "remove", "sort"}},
    string = {other_fields = true, fields = {"byte", "char", "find", "format", "gmatch", "gsub", "len", "lower", "match", "rep", "sub", "upper"}},
    "assert", "error", "ipairs", "next", "pairs", "pcall", "select", "setmetatable", "tonumber", "tostring", "type", "unpack",
  },
}
std = "script"
max_line_length = 130
-- A script takes a whole include and may use a part of it; tools/lint_lua.py finds what no script uses.
ignore = {"211/[A-Za-z_]+", "241/touched"}
