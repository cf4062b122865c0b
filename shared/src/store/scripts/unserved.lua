#!lua flags=allow-oom
-- unserved: wait ms, person expiry ms. Finished work that no live reviewer may take goes to a person, and so does the goal
-- whose ready work nobody serves: a lane without a consumer is a decision, not a queue (I4). It goes on by itself when one
-- comes. Consumers that beat no more are taken off the lists (Q39).   answers a count
local wait, expiry, n = tonumber(ARGV[1]), tonumber(ARGV[2]), 0
local ALIVE_MS = 90000
local function consumers(lane) return redis.call('ZCOUNT', P .. 'cons:' .. lane, NOW - ALIVE_MS, '+inf') end
local actors
local function eligible(work_actor)
  if not actors then
    actors = {}
    for _, c in ipairs(redis.call('ZRANGEBYSCORE', P .. 'cons:review', NOW - ALIVE_MS, '+inf', 'LIMIT', 0, PAGE)) do
      actors[#actors + 1] = redis.call('HGET', P .. 'c:' .. c, 'actor')
    end
  end
  for _, a in ipairs(actors) do
    if a and a ~= work_actor and redis.call('SISMEMBER', P .. 'suspended', a) == 0 then return true end
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
-- Whoever was asked about a lane need not answer any more once somebody serves it.
for _, member in ipairs(redis.call('SRANDMEMBER', P .. 'unserved', PAGE)) do
  local goal, lane = string.match(member, '^([^|]*)|(.*)$')
  local g = goal_of(goal)
  local cause = redis.call('HMGET', gk(goal), 'cause', 'cause_detail')
  local waits = g and g.state == 'needs_human' and cause[1] == 'unserved_lane'
    and string.find(cause[2] or '', ' ' .. lane .. ';', 1, true)
  if not waits then
    redis.call('SREM', P .. 'unserved', member)
  elseif consumers(lane) > 0 then
    redis.call('SREM', P .. 'unserved', member)
    redis.call('ZREM', P .. 'ask', 'g:' .. goal)
    redis.call('HSET', gk(goal), 'state', 'running', 'cause', '', 'cause_detail', '', 'due_at', '', 'updated_at', NOW)
    event(goal, 'goal_goes_on', nil, 'needs_human', 'running', 'fleet', 'a worker serves ' .. lane)
    g.state = 'running'
    inbox(g, 'idle', nil, '') -- what came meanwhile is looked at
    n = n + 1
  end
end
for _, c in ipairs(redis.call('ZRANGEBYSCORE', P .. 'consumers', '-inf', NOW - ALIVE_MS, 'LIMIT', 0, PAGE)) do
  -- Its entry lives as long as it renews, whoever published it how long ago.
  if redis.call('EXISTS', P .. 'c:' .. c) == 0 then redis.call('ZREM', P .. 'consumers', c) end
end
for _, lane in ipairs(redis.call('SMEMBERS', P .. 'lanes')) do
  for _, c in ipairs(redis.call('ZRANGEBYSCORE', P .. 'cons:' .. lane, '-inf', NOW - ALIVE_MS, 'LIMIT', 0, PAGE)) do
    redis.call('ZREM', P .. 'cons:' .. lane, c)
  end
  if string.sub(lane, 1, 5) == 'work.' and redis.call('SCARD', P .. 'dem:' .. lane) > 0 and consumers(lane) == 0 then
    for prio = 0, 2 do
      for _, goal in ipairs(redis.call('ZRANGE', P .. 'ring:' .. lane .. ':' .. prio, 0, 9)) do
        local g = goal_of(goal)
        local raw = redis.call('LINDEX', gk(goal) .. ':q:' .. lane .. ':' .. prio, 0)
        local t = raw and load(string.sub(raw, 2, 33))
        -- Counted from the last answer too: who said "wait on" is not asked again at once.
        local since = g and math.max(tonumber(t and t.ready_at) or NOW, tonumber(redis.call('HGET', gk(goal), 'updated_at')) or 0)
        if g and t and g.state == 'running' and NOW - since > wait then
          goal_to_person(g, 'fleet', 'unserved_lane', 'no live worker serves ' .. lane .. '; start one with this pool, or answer to wait on', expiry)
          redis.call('SADD', P .. 'unserved', goal .. '|' .. lane)
          n = n + 1
        end
      end
    end
  end
end
return n
