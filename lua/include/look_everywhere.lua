-- A slice that blocks or heals lets others pass, or holds them up: every free slice is looked at again.
function rules.touch_all()
  for _, s in ipairs(redis.call('SMEMBERS', key('slices'))) do touched[s] = 0 end
end
