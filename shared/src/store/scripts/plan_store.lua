#!lua flags=allow-oom
-- plan_store: goal, epoch, lease id, plan ref   answers OK DUP FENCED GONE
local g = goal_of(ARGV[1])
local no = not_manager(g, ARGV[2], ARGV[3])
if no then return no end
if redis.call('HGET', gk(g.id), 'plan_ref') == ARGV[4] then return 'DUP' end
redis.call('HSET', gk(g.id), 'plan_ref', ARGV[4], 'updated_at', NOW)
event(g.id, 'plan_stored', nil, '', '', 'manager', ARGV[4])
return 'OK'
