function on_due.node(node)
  local N = record('node', node) or {}
  write('node', node, { silent = '1' })
  event('silent', 'node', node)
  for _, s in ipairs(words(N.slices)) do
    if record('slice', s) then rules.block(s, node, { kind = 'silent', reason = 'node ' .. node .. ' is silent' }) end
  end
end

function on_due.switch(id)
  local r = record('request', id)
  if not r or r.state ~= 'switching' then return end
  for _, s in ipairs(words(r.slices)) do
    local reason = rules.blocked(s, r.run)
    if reason then return rules.requeue(id, reason) end
  end
end

function on_due.run(run)
  local r = record('run', run)
  if r and r.open then return due('run|' .. run, pool + FORGET_RUN) end
  erase('run', run)
  for _, p in ipairs(redis.call('SMEMBERS', key('procs', run))) do erase('process', run .. '/' .. p) end
  redis.call('DEL', key('procs', run))
end
