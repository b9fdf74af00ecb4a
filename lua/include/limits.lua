-- Numbers that the rules share; all in ms unless they say otherwise.
local QUEUE_LIMIT = 20000        -- requests in one queue
local SCAN = 64                  -- queue entries and due deadlines that one script looks at; the next one goes on
local FAR = 1024                 -- how far back in its other queues a request of several slices may be passed forward
local LEASE = 60000              -- assumed while no client has said how long its lease is
local HEAD_START = 30000         -- of one step of priority
local EPOCH_PATIENCE = 2000      -- a slice with nodes settles no earlier
local SWITCH_PATIENCE = 10000    -- a switch of several slices waits for a blocked one before it frees the others
local MAX_STEP = 5000            -- a longer step of the clock counts as nothing
local NODE_PATIENCE = 10000      -- a declared node that has never been heard of is silent after it
local MAX_SILENT = 60000         -- a node is silent after it at the latest
local MAX_AHEAD = 86400000       -- by which a fence may be ahead of the clock
local MAX_RETRY = 60000          -- between two attempts to evict
local HEARD = 12000              -- a process heard of within this time is alive
local REMEMBER = 900000          -- an ended request, for late repetitions
local FORGET_RUN = 600000        -- a run that is no longer heard of
local EVENTS = 100000            -- events kept, about
local LAST_EPOCH = 1000000000    -- a higher one that somebody tells is none
