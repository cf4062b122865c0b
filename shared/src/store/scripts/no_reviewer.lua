#!lua flags=allow-oom
-- no_reviewer: wait ms, person expiry ms. Finished work that no live reviewer may take goes to a person.   answers a count
local wait, expiry, n = tonumber(ARGV[1]), tonumber(ARGV[2]), 0
local actors
local function eligible(work_actor)
  if not actors then
    actors = {}
    for _, c in ipairs(redis.call('ZRANGEBYSCORE', P .. 'cons:review', NOW - 90000, '+inf', 'LIMIT', 0, PAGE)) do
      actors[#actors + 1] = redis.call('HGET', P .. 'c:' .. c, 'actor')
    end
  end
  for _, a in ipairs(actors) do
    if a and a ~= work_actor then return true end
  end
  return false
end
for prio = 0, 2 do
  for _, goal in ipairs(redis.call('ZRANGE', P .. 'ring:review:' .. prio, 0, 9)) do
    local list = gk(goal) .. ':q:review:' .. prio
    local raw = redis.call('LINDEX', list, 0)
    local t = raw and load(string.sub(raw, 2, 33))
    if t and goal_of(goal) and t.status == 'reviewing' and not t.owned and NOW - (tonumber(t.ready_at) or NOW) > wait
      and not eligible(t.work_actor) then
      redis.call('LREM', list, 1, raw)
      if redis.call('LLEN', list) == 0 then ring_remove(goal_of(goal), 'review', tostring(prio)) end
      move(t, 'needs_human', { word = 'no_reviewer', who = 'fleet', expiry = expiry,
        set = { 'cause', 'no_reviewer', 'cause_detail', 'no reviewer that may take it within ' .. wait .. ' ms' } })
      n = n + 1
    end
  end
end
return n
