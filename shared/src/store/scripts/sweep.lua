#!lua flags=allow-oom
-- sweep: lease ms, outage ms, person expiry ms, cancel grace ms, limit
-- Lapsed leases, due delays, expired decisions, deadlines, forced cancels, ended goals, dependents (fan).
-- Selection, re-check and transition in one script: any number of sweepers is safe.
-- answers {requeued, escalated, promoted, grace, more, lost}: lost leases of tickets, each {id, goal, epoch, attempt or review, its number, owner, traceparent}
local lease_ms, outage_ms, expiry_ms, grace_ms, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local requeued, escalated, promoted, more, lost = 0, 0, 0, false, {}
local function due(key) return redis.call('ZRANGEBYSCORE', P .. key, '-inf', NOW, 'LIMIT', 0, limit) end

-- Outage grace: nobody swept, or the clock went back; leases look lapsed while their owners live.
local v = redis.call('HMGET', KEYS[1], 'last_sweep', 'grace_until')
local last, grace_until = tonumber(v[1]), tonumber(v[2]) or 0
if last and (NOW - last > outage_ms or NOW < last - 2000) then
  grace_until = NOW + lease_ms
  redis.call('HSET', KEYS[1], 'grace_until', grace_until)
end
redis.call('HSET', KEYS[1], 'last_sweep', NOW)
local grace = NOW < grace_until and grace_until - NOW <= lease_ms

if not grace then
  local lapsed = due('lease')
  if #lapsed == limit then more = true end
  for _, id in ipairs(lapsed) do
    local goal = string.match(id, '^g:(.*)$')
    if goal then
      local g = goal_of(goal)
      redis.call('ZREM', P .. 'lease', id)
      if g and g.lease_id ~= '' and not OVER[g.state] then
        g.epoch = g.epoch + 1
        g.lease_id = ''
        local losses = g.losses + 1
        redis.call('HSET', gk(goal), 'epoch', g.epoch, 'lease_id', '', 'losses', losses, 'updated_at', NOW)
        event(goal, 'step_lost', nil, g.state, g.state, 'sweeper', losses)
        if losses >= cap_of(g, 'goal_losses') then
          goal_to_person(g, 'sweeper', 'step_losses', losses .. ' managers were lost in this goal\'s step', expiry_ms)
        else
          wake(g)
          requeued = requeued + 1
        end
      end
    else
      local t = load(id, 'reviews', 'traceparent')
      if not t or not t.owned then
        redis.call('ZREM', P .. 'lease', id) -- left over: the state is the truth (Q30)
      elseif not goal_of(t.goal) then
        redis.call('ZREM', P .. 'lease', id)
      else
        local what, number = 'attempt', t.attempts
        if t.status == 'reviewing' then what, number = 'review', t.reviews end
        lost[#lost + 1] = { id, t.goal, tostring(t.epoch), what, number ~= '' and number or '1', t.assignee, t.traceparent }
        local o = { word = 'lease_lost', who = 'sweeper', detail = 'lease of ' .. t.assignee .. ' lapsed' }
        if OVER[goal_of(t.goal).state] or t.cancel_asked == '1' then
          move(t, 'cancelled', o)
          ended(t)
        else
          local to
          if t.status == 'reviewing' then to = count(t, 'review_losses', 'reviewing', o)
          else to = count(t, 'losses', 'pending', o) end
          if to == 'escalated' then escalated = escalated + 1 else requeued = requeued + 1 end
        end
      end
    end
  end
end

local delays = due('delay')
if #delays == limit then more = true end
for _, id in ipairs(delays) do
  redis.call('ZREM', P .. 'delay', id)
  local t = load(id)
  if t and unowned(t) and t.due_at ~= '' and goal_of(t.goal) then
    promoted = promoted + 1
    local raw = push_ready(goal_of(t.goal), t, t.status)
    redis.call('SADD', P .. 'dem:' .. lane_of(t, t.status), id)
    redis.call('HSET', hk(id), 'due_at', '', 'ready_at', NOW, 'delivery', raw)
  end
end

local asks = due('ask')
if #asks == limit then more = true end
for _, id in ipairs(asks) do
  redis.call('ZREM', P .. 'ask', id)
  local goal = string.match(id, '^g:(.*)$')
  if goal then
    local g = goal_of(goal)
    if g and g.state == 'needs_human' then end_goal(g, 'failed', 'expiry', 'expired', 'nobody answered in time') end
  else
    local t = load(id)
    if t and t.status == 'needs_human' then
      move(t, 'failed', { word = 'expired', who = 'expiry', detail = 'nobody answered in time' })
      ended(t)
    elseif t and t.status == 'awaiting_approval' then
      -- I7: no answer is a no.
      move_to_work(t, 'pending', { word = 'expired', who = 'expiry', set = { 'permit_state', 'denied', 'permit_note', 'expired' } })
    end
  end
end

-- Whoever reserved is gone: what the call may have cost is booked once, at its worst.
local lapsed_calls = due('res')
if #lapsed_calls == limit then more = true end
for _, member in ipairs(lapsed_calls) do
  local goal, call = string.match(member, '^(%x+)|(.*)$')
  local tokens, money, id
  if goal and goal_of(goal) then tokens, money, id = unreserve(goal, call) end
  redis.call('ZREM', P .. 'res', member)
  if tokens then
    local t = spend(goal, id, tokens, money)
    event(goal, 'reservation_lapsed', t, '', '', 'sweeper', tokens .. ' tokens at worst')
  end
end

-- The tenant's period turned, or its budget was raised.
local funded = due('tbp')
if #funded == limit then more = true end
for _, goal in ipairs(funded) do
  redis.call('ZREM', P .. 'tbp', goal)
  local g = goal_of(goal)
  if g and g.state == 'needs_human' and redis.call('HGET', gk(goal), 'cause') == 'tenant_budget' then
    goal_answered(g, 'fleet', 'the tenant has a budget again')
  end
end

for _, goal in ipairs(due('dl')) do
  redis.call('ZREM', P .. 'dl', goal)
  local g = goal_of(goal)
  if g and not OVER[g.state] then
    redis.call('HSET', gk(goal), 'late', '1')
    g.late = '1'
    rings_close(g)
    event(goal, 'deadline', nil, g.state, g.state, 'fleet', '')
    inbox(g, 'deadline', nil, '')
  end
end

for _, id in ipairs(due('cancelling')) do
  redis.call('ZREM', P .. 'cancelling', id)
  local t = load(id)
  if t and t.owned and t.cancel_asked == '1' then
    move(t, 'cancelled', { word = 'cancelled', who = 'sweeper', detail = 'its owner did not stop in time' })
    ended(t)
  end
end

-- Goals that are over: their tickets are cancelled in pages.
local ending = redis.call('SRANDMEMBER', P .. 'ending')
if ending then
  local g = goal_of(ending)
  local cursor = g and tonumber(redis.call('HGET', gk(ending), 'end_cursor')) or 0
  local page = g and redis.call('ZRANGE', gk(ending) .. ':t', cursor, cursor + limit - 1) or {}
  for _, id in ipairs(page) do
    local t = load(id)
    if t and not TERMINAL[t.status] then
      if t.owned then
        redis.call('HSET', hk(id), 'cancel_asked', '1')
        redis.call('ZADD', P .. 'cancelling', NOW + grace_ms, id)
      else
        move(t, 'cancelled', { who = 'fleet', detail = 'the goal is over' })
      end
    end
  end
  if #page < limit then
    redis.call('SREM', P .. 'ending', ending)
  else
    redis.call('HSET', gk(ending), 'end_cursor', cursor + #page)
    more = true
  end
end

-- Dependents that still have to be told (kind|ticket|epoch|generation|offset).
for _ = 1, 5 do
  local entry = redis.call('LPOP', P .. 'fan')
  if not entry then break end
  local kind, id, epoch, generation, offset = string.match(entry, '^(%a+)|(%x+)|(%d+)|(%d*)|(%d+)$')
  local t = id and load(id)
  offset = tonumber(offset)
  if t and goal_of(t.goal) and not OVER[goal_of(t.goal).state] then
    if kind == 'end' and TERMINAL[t.status] and t.epoch == tonumber(epoch) then
      if settle_page(id, t.status, offset) then fan_push('end', t, offset + PAGE) end
    elseif kind == 'dead' and t.status == 'blocked' then
      settle_dead(id)
    elseif kind == 'open' and t.generation == generation then
      local deps = redis.call('ZRANGE', hk(id) .. ':o', offset, offset + PAGE - 1)
      for _, d in ipairs(deps) do reopen_need(d, id, t.status == 'done') end
      if #deps == PAGE then fan_push('open', t, offset + PAGE) end
    end
  end
end
if redis.call('LLEN', P .. 'fan') > 0 then more = true end
return { requeued, escalated, promoted, grace and 1 or 0, more and 1 or 0, lost }
