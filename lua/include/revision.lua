-- A run's processes have changed: agents have to know. Like a fence, a revision is never given out twice, not even by a
-- server that has forgotten everything.
function rules.new_revision(run)
  local rev = tonumber((record('run', run) or {}).rev) or 0
  write('run', run, { rev = num(math.max(rev + 1, raw)) })
end
