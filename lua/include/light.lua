-- Redis at its memory limit refuses a script whose first write may need memory, and none that begins like this one:
-- what lets go of something must always work.
redis.call('HDEL', KEYS[1], '-')
