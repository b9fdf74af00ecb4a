-- What agents report comes from outside, and deadlines and events are written while it is taken. An error here comes before that.
local failures = { evict = true, restore = true, later = true, refused = true }

local function check_fields(item, needed, others)
  for name, kind in pairs(needed) do assert(type(item[name]) == kind, 'a report without ' .. name) end
  for name, kind in pairs(others) do
    assert(item[name] == nil or type(item[name]) == kind, 'a report whose ' .. name .. ' makes no sense')
  end
end

local function check_results(list)
  for _, result in ipairs(list) do
    check_fields(result, { slice = 'string' }, { what = 'string', reason = 'string', run = 'string', bytes = 'number',
                                                 seconds = 'number', busy = 'number', steps = 'table', moved = 'boolean' })
    local failed = result.outcome == 'FAILED' and failures[result.what] and result.reason and result.run
    assert(failed or result.outcome == 'READY', 'a result that is neither READY nor a FAILED that says what, of whom and why')
  end
end

local function check_report(report)
  for _, shown in pairs(report.slices or {}) do
    check_fields(shown, { k = 'number' }, { loaded = 'table', saved = 'table' })
  end
  check_results(report.results or {})
  for _, gone in ipairs(report.exits or {}) do check_fields(gone, { run = 'string', process = 'string' }, {}) end
  local command = { run = 'string', process = 'string', n = 'number', what = 'string', slice = 'string' }
  for _, one in ipairs(report.commands or {}) do check_fields(one, command, {}) end
end
