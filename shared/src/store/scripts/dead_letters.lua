#!lua flags=allow-oom
-- dead_letters: push lane raw reason · requeue: takes one off; a live ticket that it names and that has no place gets
-- a fresh delivery from its hash. answers {1 or 0 taken, 1 or 0 requeued}
if ARGV[1] == 'push' then
  dead(ARGV[2], ARGV[3], ARGV[4])
  return { 1, 0 }
end
local entry = redis.call('LPOP', P .. 'dead')
if not entry then return { 0, 0 } end
local raw = string.match(entry, '\n(.*)$') or ''
local id = string.match(raw, '^.(%x+):%d+|')
local t = id and #id == 32 and load(id)
if not t or not goal_of(t.goal) then return { 1, 0 } end
local s = t.status
if unowned(t) and t.due_at == '' then
  local key = gk(t.goal) .. ':q:' .. lane_of(t, s) .. ':' .. t.priority
  if t.delivery == '' or not redis.call('LPOS', key, t.delivery) then
    redis.call('HSET', hk(id), 'delivery', push_ready(goal_of(t.goal), t, s))
    return { 1, 1 }
  end
end
return { 1, 0 }
