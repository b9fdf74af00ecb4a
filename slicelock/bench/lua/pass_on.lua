-- Passes a message on: the least that a step of a hand-over does.
-- KEYS[1] the channel it goes to
-- ARGV[1] the message
return redis.call('PUBLISH', KEYS[1], ARGV[1])
