-- Rules that a script does not include itself: a chapter is defined when one of its rules is asked for, since it costs time.
local function when_somebody_waits()
--- @include "free"
--- @include "start"
--- @include "queue"
--- @include "waiters"
--- @include "look"
end

local function when_something_ends()
--- @include "finish"
--- @include "part"
--- @include "give_back"
--- @include "requeue"
--- @include "state_saved"
--- @include "done"
end

local function when_somebody_asks()
--- @include "answer"
--- @include "answer_not_held"
end

local function seldom()
--- @include "keep"
--- @include "block"
--- @include "exit"
--- @include "new_epoch"
--- @include "reap"
end
