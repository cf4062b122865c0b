#!lua flags=allow-oom
-- progress: id, epoch, lease id, status, message, conclusion   answers OK FENCED GONE
-- A worker's word during its attempt; an obstacle or a milestone wakes the manager.
local t = load(ARGV[1])
if not t or not goal_of(t.goal) then return 'GONE' end
if not (t.owned and t.epoch == tonumber(ARGV[2]) and t.lease_id == ARGV[3]) then return 'FENCED' end
event(t.goal, 'progress', t, t.status, t.status, t.assignee, ARGV[4] .. ': ' .. ARGV[5])
add_fact(t.goal, ARGV[6])
if ARGV[4] == 'obstacle' or ARGV[4] == 'milestone' then inbox(goal_of(t.goal), ARGV[4], t, string.sub(ARGV[5], 1, 4096)) end
return 'OK'
