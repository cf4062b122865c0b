#!lua flags=allow-oom
-- outcome: the other ends of an attempt or a review: what, id, epoch, lease id, then
--   fail: class, detail, delay ms · release · park: permit, expiry ms · conflict: detail, again (1: to be redone on what was accepted),
--   the attempt's files, kept so that whoever redoes it has both versions
-- answers OK DUP FENCED GONE ESCALATED CANCELLED
local what, id, epoch, lease = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local t = load(id)
local reviewing = t and t.status == 'reviewing'
local acc = { reviewing and 'review_acc' or 'work_acc', epoch .. ':' .. lease }
local no = not_owner(t, epoch, lease, acc[1])
if no == 'FENCED' and (t.work_acc == acc[2] or t.review_acc == acc[2]) then no = 'DUP' end
if no then return no end
if what == 'park' and reviewing then return 'FENCED' end
if cancelled_instead(t, acc, { word = 'cancelled' }) then return 'CANCELLED' end
local set = { acc[1], acc[2] }
local to
if what == 'fail' then
  local class, detail, delay = ARGV[5], ARGV[6], tonumber(ARGV[7])
  set[3] = 'failure'; set[4] = detail
  local o = { word = 'attempt_failed', set = set, detail = detail, delay = delay }
  if reviewing then
    o.word = 'review_failed'
    if class == 'not_retryable' then to = escalate(t, 'review_faults', o)
    elseif class == 'wait' then to = count(t, 'waits', 'reviewing', o)
    else to = count(t, 'review_faults', 'reviewing', o) end
  elseif class == 'not_retryable' then to = escalate(t, 'not_retryable', o)
  elseif class == 'wait' then to = count(t, 'waits', 'pending', o)
  else to = count(t, 'faults', 'pending', o) end
elseif what == 'release' then
  local o = { word = 'released', set = set, head = true }
  -- Given back for want of money it has cost nothing and counts as nothing.
  if goal_of(t.goal).broke == '1' then
    if reviewing then move(t, 'reviewing', o) else move_to_work(t, 'pending', o) end
  elseif reviewing then to = count(t, 'review_releases', 'reviewing', o)
  else to = count(t, 'releases', 'pending', o) end
elseif what == 'park' then
  for _, v in ipairs({ 'permit', ARGV[5], 'permit_state', 'asked', 'permit_note', '', 'permit_args', '' }) do set[#set + 1] = v end
  to = count(t, 'asks', 'awaiting_approval', { word = 'confirmation_asked', set = set, expiry = tonumber(ARGV[6]), detail = ARGV[5] })
else
  set[3] = 'failure'; set[4] = ARGV[5]
  if (ARGV[7] or '') ~= '' then set[5] = 'overlay_ref'; set[6] = ARGV[7] end
  local o = { word = 'conflict', set = set, detail = ARGV[5] }
  if ARGV[6] == '1' then to = count(t, 'conflicts', 'rejected', o) else to = escalate(t, 'conflicts', o) end
end
return to == 'escalated' and 'ESCALATED' or 'OK'
