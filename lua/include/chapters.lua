-- The rules that a script has not included itself: a chapter of them is defined when the first of its rules is asked for,
-- since defining a function costs as much as running a small one.
local function when_somebody_waits()
--- @include "free"
--- @include "start"
--- @include "queue"
--- @include "waiters"
--- @include "look"
--- @include "answer"
--- @include "answer_not_held"
end

local function when_something_ends()
--- @include "finish"
--- @include "part"
--- @include "give_back"
--- @include "requeue"
--- @include "state_saved"
--- @include "done"
end

local function seldom()
--- @include "keep"
--- @include "block"
--- @include "exit"
--- @include "settle"
--- @include "new_epoch"
--- @include "reap"
end
--- @include "turn_page"
