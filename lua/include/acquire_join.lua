-- Where everything is free and nobody waits, or all was its own before, a request needs no place in a queue.
local function starts_at_once(r, was_its)
  for _, s in ipairs(words(r.slices)) do
    if not rules.free_for(s, r) or not was_its and rules.waiting(s) > 0 then return false end
  end
  return true
end

-- Who asks does not hold it; whether slices were kept for it until this word.
local function disowned(id, r, member)
  local was_its = false
  for _, s in ipairs(words(meta.keeping)) do
    if (record('slice', s) or {}).kept == id then was_its = rules.disown(s, member, r.members) or was_its end
  end
  return was_its
end

-- The member takes part; with the last one the request enters its queues, at the first one's place.
local function join(id, r, member, process)
  local joined = contains(r.joined, member)
  write('request', id, { ['member:' .. member] = process, joined = with(r.joined, member) })
  local was_its = disowned(id, r, member)
  if r.state == 'gathering' and not joined then
    if not rules.last_has_come(id, r) then return gather(id, r) end
    if starts_at_once(r, was_its) then rules.start(id, r) else rules.enqueue(id, r) end
  elseif was_its and r.state == 'queued' and starts_at_once(r, true) then
    rules.dequeue(id, r)
    rules.start(id, r)
  end
end
