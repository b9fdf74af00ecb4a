-- The same for a script that lets go of something, which must always work: Redis at its memory limit refuses a script whose
-- first write may need memory, and none that begins like this one.
redis.call('ZREM', string.sub(KEYS[1], 1, -5) .. 'deadlines', '-')
--- @include "base"
