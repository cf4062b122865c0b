#!lua flags=allow-oom
-- claim: kind, consumer, lease prefix, lease ms, n, actor, lanes…
-- answers: word, hint ms, then per ticket {id, epoch, lease id, raw delivery, queue wait ms, fields of a fresh one…}
-- A fresh ticket (planned, never touched since) comes with what its hash holds; any other is read by the client: passing a
-- whole hash through Lua costs more than all the rest.
local kind, consumer, prefix = ARGV[1], ARGV[2], ARGV[3]
local lease_until = string.format('%.0f', NOW + tonumber(ARGV[4]))
local n, actor = math.min(tonumber(ARGV[5]), 64), ARGV[6]
local PROBES = 96
local MATE_MS = 30000 -- a consumer that beat within this time counts
local got_key = P .. 'cl:' .. consumer
local out = {}
local function answer(t, raw, wait)
  local a = { t.id, tostring(t.epoch), t.lease_id, raw, tostring(wait) }
  out[#out + 1] = a
  return a
end
-- The order is the client's FRESH.
local function fresh(t, g, a)
  local v = rcall('HMGET', hk(t.id), 'revision', 'parent_id', 'description', 'input_context', 'expected_output', 'spec',
    'needs_policy', 'traceparent', 'created_at')
  if v[1] or not v[6] then return end
  for i = 2, 9 do a[4 + i] = v[i] or '' end
  a[14], a[15], a[16], a[17], a[18], a[19], a[20], a[21] = t.goal, t.key, t.pool, t.review, t.priority, t.mandatory, t.ready_at, g.root
  a[22], a[23] = NOWS, NOWS
end

-- A repeat after a lost reply gets the same tickets again.
local last = rcall('GET', got_key)
if last and string.sub(last, 1, #prefix + 1) == prefix .. ' ' then
  for id in string.gmatch(string.sub(last, #prefix + 2), '%x+') do
    local t = load(id)
    if t and t.owned and string.sub(t.lease_id, 1, #prefix) == prefix then answer(t, t.delivery, 0) end
  end
  return { #out > 0 and 'OK' or 'AGAIN', '0', unpack(out) }
end
if rcall('HGET', KEYS[1], 'paused') == '1' then return { 'PAUSED', '1000' } end
-- Who lets planted defects pass reviews no more until a person says so.
if kind == 'review' and rcall('SISMEMBER', P .. 'suspended', actor) == 1 then return { 'PAUSED', '1000' } end

local got, probes, left = {}, 0, false
-- Among several consumers each takes its share of the lane's demand at most (what is leased already counts in it: a bound
-- for many idle ones, not a promise).
local waiting, mates = 0, 1
for i = 7, #ARGV do
  waiting = waiting + rcall('SCARD', P .. 'dem:' .. ARGV[i])
  mates = math.max(mates, rcall('ZCOUNT', P .. 'cons:' .. ARGV[i], NOW - MATE_MS, '+inf'))
end
if mates > 1 then n = math.min(n, math.max(1, math.ceil(waiting / mates))) end
local prios = { '0', '1', '2' }
-- Now and then from the other end, so that bulk work is not starved.
if string.sub(prefix, 1, 1) == '0' then prios = { '2', '1', '0' } end

local function take(t, raw, g)
  local lease = prefix .. '.' .. (#got + 1)
  local wait = NOW - (tonumber(t.ready_at) or NOW)
  local untouched = kind == 'work' and t.epoch == 2
  got[#got + 1] = t.id
  if kind == 'work' then
    move(t, 'running', { word = 'claimed', lease = lease, lease_until = lease_until, who = consumer,
      set = { 'attempts', (tonumber(t.attempts) or 0) + 1, 'base_root', g.root } })
  else
    move(t, 'reviewing', { word = 'review_claimed', lease = lease, lease_until = lease_until, who = consumer,
      set = { 'reviews', (tonumber(t.reviews) or 0) + 1 } })
  end
  local a = answer(t, raw, math.max(wait, 0))
  if untouched then fresh(t, g, a) end
end
local function parse(raw)
  local id, epoch = string.match(raw, '^1(%x+):(%d+)|')
  if not id or #id ~= 32 or #epoch ~= 10 then return nil end
  return id, tonumber(epoch)
end
local function is_current(t, epoch)
  if not t or t.epoch ~= epoch or t.owned then return false end
  if kind == 'review' then return t.status == 'reviewing' end
  return t.status == 'pending' or t.status == 'rejected'
end

-- How many turns the first goal of the ring has before the next one's: its score grows by `mates` with each.
local function turns(first, mates)
  if not first[3] then return n end
  local ahead = (tonumber(first[4]) - tonumber(first[2])) / mates
  local k = math.ceil(ahead)
  if k == ahead and first[1] < first[3] then k = k + 1 end
  return math.max(k, 1)
end
local function claim_work(lane, prio)
  local ring = P .. 'ring:' .. lane .. ':' .. prio
  while #got < n and probes < PROBES do
    local first = rcall('ZRANGE', ring, 0, 1, 'WITHSCORES')
    local goal = first[1]
    if not goal then return end
    local g = goal_of(goal)
    if not g then
      probes = probes + 1
      rcall('ZREM', ring, goal)
    elseif not claimable(g, true) then
      probes = probes + 1
      ring_remove(g, lane, prio)
    else
      local list, mates = gk(goal) .. ':q:' .. lane .. ':' .. prio, ring_mates(g, lane, prio)
      local k, room = math.min(n - #got, PROBES - probes, turns(first, mates)), g.in_flight_max - g.in_flight
      if g.in_flight_max > 0 then k = math.min(k, room) end
      local raws, taken = rcall('LPOP', list, k) or {}, 0
      probes = probes + math.max(#raws, 1)
      for _, raw in ipairs(raws) do
        local id, epoch = parse(raw)
        local t = id and load(id)
        if not id then
          dead(lane, raw, 'header does not parse')
        elseif is_current(t, epoch) then
          taken = taken + 1
          take(t, raw, g)
        end
      end
      ring_pass(g, lane, prio, mates * taken)
      if #raws < k or rcall('LLEN', list) == 0 then ring_remove(g, lane, prio) end
    end
  end
  if rcall('EXISTS', ring) == 1 then left = true end
end

-- Ten from anywhere behind the front: what is passed over there hides nothing for ever.
local function behind(card, front, range)
  if card <= front then return {} end
  local from = front + tonumber(string.sub(prefix, 2, 8), 16) % (card - front)
  return range(from, from + 9)
end
-- Reviewers pass over what they may not take without popping it.
local passed = false
local function review_some(g, lane, prio, list, raws)
  local before = #got
  for _, raw in ipairs(raws) do
    if #got >= n then left = true; break end
    local id, epoch = parse(raw)
    local t = id and load(id, 'work_actor', 'reviews')
    if not id then
      rcall('LREM', list, 1, raw)
      dead(lane, raw, 'header does not parse')
    elseif not is_current(t, epoch) then
      rcall('LREM', list, 1, raw)
    elseif t.work_actor ~= actor or actor == '' then
      rcall('LREM', list, 1, raw)
      take(t, raw, g)
    end
  end
  ring_pass(g, lane, prio, ring_mates(g, lane, prio) * (#got - before))
  return #got > before
end
local function review_goals(goals, lane, prio)
  -- Each goal's share of what is wanted, so that none has all of a big claim.
  local front = math.max(10, math.ceil((n - #got) / math.max(#goals, 1)))
  for _, goal in ipairs(goals) do
    local g = goal_of(goal)
    if not g then
      rcall('ZREM', P .. 'ring:' .. lane .. ':' .. prio, goal)
    elseif not claimable(g, false) then
      ring_remove(g, lane, prio)
    else
      local list = gk(goal) .. ':q:' .. lane .. ':' .. prio
      local function range(first, last) return rcall('LRANGE', list, first, last) end
      -- Behind the front only when that gave nothing: taking from the middle of a long list is dear.
      if not review_some(g, lane, prio, list, range(0, front - 1)) then
        local raws = behind(rcall('LLEN', list), front, range)
        if #raws > 0 then passed = true end
        review_some(g, lane, prio, list, raws)
      end
      if rcall('LLEN', list) == 0 then ring_remove(g, lane, prio) end
    end
    if #got >= n then left = true; return end
  end
end
local function claim_review(lane, prio)
  local ring = P .. 'ring:' .. lane .. ':' .. prio
  local function range(first, last) return rcall('ZRANGE', ring, first, last) end
  review_goals(range(0, 9), lane, prio)
  if #got == 0 then
    local goals = behind(rcall('ZCARD', ring), 10, range)
    if #goals > 0 then passed = true end
    review_goals(goals, lane, prio)
  end
end

for _, prio in ipairs(prios) do
  for i = 7, #ARGV do
    if #got < n then
      if kind == 'work' then claim_work(ARGV[i], prio) else claim_review(ARGV[i], prio) end
    end
  end
end
if #got == 0 then
  if left then return { 'AGAIN', '5' } end
  if passed then return { 'AGAIN', '250' } end
  return { 'EMPTY', '0' }
end
rcall('SET', got_key, prefix .. ' ' .. table.concat(got, ','), 'EX', 90)
-- Work is left behind: one more waiter is woken, not all.
if left then for i = 7, #ARGV do token(ARGV[i]) end end
return { 'OK', '0', unpack(out) }
