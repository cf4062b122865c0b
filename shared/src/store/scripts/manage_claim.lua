#!lua flags=allow-oom
-- manage_claim: manager, lease id, lease ms   answers {EMPTY} or {OK, goal, epoch, events, flat fields}
-- The inbox is read, not trimmed: a manager that dies loses no event.
local EVENTS = 200
for _ = 1, 10 do
  local goal = redis.call('LPOP', P .. 'q:manage')
  if not goal then return { 'EMPTY' } end
  local g = goal_of(goal)
  if g then
    redis.call('HSET', gk(goal), 'mq', '')
    g.mq = ''
    local events = redis.call('LRANGE', gk(goal) .. ':in', 0, EVENTS - 1)
    if #events > 0 and g.lease_id == '' and not OVER[g.state] then
      redis.call('HSET', gk(goal), 'epoch', g.epoch + 1, 'lease_id', ARGV[2], 'manager', ARGV[1])
      redis.call('ZADD', P .. 'lease', NOW + tonumber(ARGV[3]), 'g:' .. goal)
      return { 'OK', goal, tostring(g.epoch + 1), events, redis.call('HGETALL', gk(goal)) }
    end
  end
end
return { 'EMPTY' }
