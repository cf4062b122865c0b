#!lua flags=allow-oom
-- audit: goal, offset, limit, fix (0: read only), person expiry ms
-- Each ticket of the page is in exactly the one place that its state says (L1, I4); `fix` puts it there.
-- answers {tickets seen, running seen, open mandatory seen, {rule, id, detail}…}
local goal, offset, limit, fix, expiry = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1', tonumber(ARGV[5])
local SCAN_MAX = 2000 -- of a list; in a longer one nothing is missed until it has become shorter (L7)
local g = goal_of(goal)
local out, running, mandatory = {}, 0, 0
local function found(rule, id, detail) out[#out + 1] = { rule, id, detail } end
if not g then return { 0, 0, 0 } end
local page = redis.call('ZRANGE', gk(goal) .. ':t', offset, offset + limit - 1)
local lists = {}
local function in_list(t, status)
  local lane = lane_of(t, status)
  local key = gk(goal) .. ':q:' .. lane .. ':' .. t.priority
  if not lists[key] then
    lists[key] = {}
    for _, raw in ipairs(redis.call('LRANGE', key, 0, SCAN_MAX)) do lists[key][string.sub(raw, 1, 45)] = true end
    lists[key].full = redis.call('LLEN', key) <= SCAN_MAX
  end
  local header = '1' .. t.id .. ':' .. string.format('%010d', t.epoch) .. '|'
  return lists[key][header] or not lists[key].full
end
for _, id in ipairs(page) do
  local t = load(id)
  if not t then
    found('L1', id, 'is in the goal\'s list without a hash')
  else
    local s, over = t.status, OVER[g.state]
    local leased = redis.call('ZSCORE', P .. 'lease', id)
    local delayed = redis.call('ZSCORE', P .. 'delay', id)
    local asked = redis.call('ZSCORE', P .. 'ask', id)
    local ready = unowned(t) and t.due_at == ''
    if s == 'running' then running = running + 1 end
    if t.mandatory == '1' and not TERMINAL[s] then mandatory = mandatory + 1 end
    if t.owned and not leased then
      found('I4', id, s .. ' without a lease')
      if fix then redis.call('ZADD', P .. 'lease', NOW - 1, id) end
    elseif leased and not t.owned then
      found('L1', id, s .. ' with a lease')
      if fix then redis.call('ZREM', P .. 'lease', id) end
    end
    if ready and not over and not in_list(t, s) then
      found('I4', id, s .. ' without a delivery')
      if fix then redis.call('HSET', hk(id), 'delivery', push_ready(g, t, s), 'ready_at', NOW) end
    end
    local wants_delay = unowned(t) and t.due_at ~= ''
    if wants_delay and not delayed then
      found('I4', id, s .. ' is delayed without a timer')
      if fix then redis.call('ZADD', P .. 'delay', t.due_at, id) end
    elseif delayed and not wants_delay then
      found('L1', id, s .. ' with a delay')
      if fix then redis.call('ZREM', P .. 'delay', id) end
    end
    local wants_ask = s == 'needs_human' or s == 'awaiting_approval'
    if wants_ask and not asked then
      found('I4', id, s .. ' without an expiry')
      if fix then redis.call('ZADD', P .. 'ask', tonumber(t.due_at) or (NOW + expiry), id) end
    elseif asked and not wants_ask then
      found('L1', id, s .. ' with an open decision')
      if fix then redis.call('ZREM', P .. 'ask', id) end
    end
    local esc = redis.call('SISMEMBER', gk(goal) .. ':esc', id) == 1
    if (s == 'escalated') ~= esc and not over then
      found('I4', id, s .. (esc and ' among the escalated' or ' not among the escalated'))
      if fix then
        redis.call(esc and 'SREM' or 'SADD', gk(goal) .. ':esc', id)
        if not esc then inbox(g, 'escalated', t, t.cause) end
      end
    end
    if s == 'blocked' and not over then
      local open, dead_end = 0, nil
      for _, need in ipairs(redis.call('SMEMBERS', hk(id) .. ':d')) do
        open = open + 1
        if need == 'seal' then
          if g.sealed == '1' and redis.call('SISMEMBER', P .. 'sealing', goal) == 0 then
            found('I4', id, 'waits for the seal of a sealed plan')
            if fix then redis.call('HSET', gk(goal), 'seal_cursor', 0); redis.call('SADD', P .. 'sealing', goal) end
          end
        else
          local ns = redis.call('HGET', hk(need), 'status')
          if ns == 'done' and redis.call('LLEN', P .. 'fan') == 0 then
            found('I4', id, 'waits for ' .. need .. ', which is done')
            if fix then settle_need(id, need, 'done') end
          elseif not ns or (TERMINAL[ns] and ns ~= 'done') then
            dead_end = need
          end
        end
      end
      if open == 0 then
        found('I4', id, 'blocked without an open need')
        if fix then move(t, 'pending', { word = 'repaired', who = 'sweeper' }) end
      elseif dead_end and redis.call('LLEN', P .. 'fan') == 0 and redis.call('SISMEMBER', gk(goal) .. ':dead', id) == 0 then
        found('I4', id, 'waits for ' .. dead_end .. ', which will never be done, and nobody knows')
        if fix then redis.call('SADD', gk(goal) .. ':dead', id); inbox(g, 'dead_need', t, dead_end) end
      end
    end
    if fix then -- a repair above may have moved it
      flush_places()
      t = load(id)
      s = t.status
      wants_delay = unowned(t) and t.due_at ~= ''
    end
    local lane = demand_lane(t, s, wants_delay)
    for _, l in ipairs({ 'review', 'work.' .. t.pool }) do
      local counted = redis.call('SISMEMBER', P .. 'dem:' .. l, id) == 1
      if counted ~= (l == lane) then
        found('L8', id, s .. (counted and ' counts' or ' does not count') .. ' in the demand of ' .. l)
        if fix then redis.call(counted and 'SREM' or 'SADD', P .. 'dem:' .. l, id) end
      end
    end
    for _, c in ipairs(COUNTERS) do
      local n = tonumber(redis.call('HGET', hk(id), c)) or 0
      if n > cap_of(g, c) + 1 then found('L5', id, c .. ' is ' .. n) end
    end
  end
end
if offset == 0 then
  if not OVER[g.state] then
    local waiting = redis.call('LLEN', gk(goal) .. ':in')
    local leased = redis.call('ZSCORE', P .. 'lease', 'g:' .. goal)
    local asked = redis.call('ZSCORE', P .. 'ask', 'g:' .. goal)
    if g.lease_id ~= '' and not leased then
      found('I4', goal, 'a manager holds the goal without a lease')
      if fix then redis.call('ZADD', P .. 'lease', NOW - 1, 'g:' .. goal) end
    end
    if g.lease_id == '' and waiting > 0 then
      if not redis.call('LPOS', P .. 'q:manage', goal) then
        found('I4', goal, 'has a filled inbox and is not queued')
        if fix then redis.call('HSET', gk(goal), 'mq', ''); g.mq = ''; wake(g) end
      end
    end
    if g.state == 'needs_human' and not asked then
      found('I4', goal, 'needs a person without an expiry')
      if fix then redis.call('ZADD', P .. 'ask', NOW + expiry, 'g:' .. goal) end
    end
    if g.lease_id == '' and waiting == 0 and not asked then
      local live = 0
      for _, s in ipairs({ 'pending', 'running', 'reviewing', 'rejected', 'awaiting_approval', 'needs_human' }) do
        live = live + (tonumber(redis.call('HGET', gk(goal), 'n:' .. s)) or 0)
      end
      if live == 0 and redis.call('SISMEMBER', P .. 'sealing', goal) == 0 and redis.call('LLEN', P .. 'fan') == 0 then
        found('I4', goal, 'waits for nobody')
        if fix then inbox(g, g.sealed == '1' and 'idle' or 'plan', nil, '') end
      end
    end
    each_lane(g, function(lane, prio)
      local n = redis.call('LLEN', gk(goal) .. ':q:' .. lane .. ':' .. prio)
      if n > 0 and claimable(g, lane ~= 'review') and not redis.call('ZSCORE', P .. 'ring:' .. lane .. ':' .. prio, goal) then
        found('I4', goal, 'has ready work in ' .. lane .. ' and is not in its ring')
        if fix then ring_add(g, lane, prio) end
      end
    end)
  end
end
return { #page, running, mandatory, unpack(out) }
