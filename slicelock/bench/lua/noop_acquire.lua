-- Does nothing, and answers as an acquire does when the turn has begun.
return { 'HELD', 'fences', '{"bench":"1770000000000000"}', 'lease_ms', '60000', 'moved', '0', 'agentless', '1' }
