-- Deadlines of nodes, which are silent, and of runs, which are forgotten.
function on_due.node(node)
  local N = record('node', node) or {}
  write('node', node, { silent = '1' })
  event('silent', 'node', node)
  for _, s in ipairs(words(N.slices)) do
    if record('slice', s) then rules.block(s, node, { kind = 'silent', reason = 'node ' .. node .. ' is silent' }) end
  end
end

function on_due.run(run)
  local r = record('run', run)
  if r and r.open then return due('run|' .. run, pool + FORGET_RUN) end
  erase('run', run)
  for _, p in ipairs(redis.call('SMEMBERS', key('procs', run))) do erase('process', run .. '/' .. p) end
  redis.call('DEL', key('procs', run))
end
