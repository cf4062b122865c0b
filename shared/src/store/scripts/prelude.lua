-- What every script begins with: keys, reading, places, and the one way in which a ticket changes (move).
-- What follows from a change (needs, counting, caps, the goal's end, the ledger) is in consequences.lua.
-- KEYS[1] is <prefix>ctl; every other key is derived from it and carries the same hash tag.
-- Rule: read and validate everything first, write afterwards; a Lua error does not roll back.
local P = string.sub(KEYS[1], 1, -4)
local TIME = redis.call('TIME') -- once: two calls in one script may differ
local NOW = TIME[1] * 1000 + math.floor(TIME[2] / 1000)
local NOWS = string.format('%.0f', NOW) -- a number handed to redis.call is formatted anew at each call
local PAGE = 100
local SETTLED_MAX = 4 * PAGE -- dependents that one call settles itself
local TOKENS_MAX = 64
local EVENTS_MAX = '10000'
local DEAD_MAX = 10000
local TERMINAL = { done = true, skipped = true, superseded = true, failed = true, cancelled = true }
local OVER = { done = true, failed = true, cancelled = true }
local COUNTERS = { 'faults', 'losses', 'waits', 'releases', 'conflicts', 'asks',
  'review_faults', 'review_losses', 'review_releases' }

local rcall = redis.call -- found once, called often
local function hk(id) return P .. 't:' .. id end
local function gk(goal) return P .. 'g:' .. goal end

-- Tickets -----------------------------------------------------------------------------------------
-- What nearly every script looks at comes in one read; any other field is read when it is asked for ('' when it is not there).
local LAZY = { __index = function(t, field)
  local v = rcall('HGET', hk(t.id), field) or ''
  rawset(t, field, v)
  return v
end }
-- `more`: fields that the caller is about to ask for.
local function load(id, ...)
  local v = rcall('HMGET', hk(id), 'status', 'goal', 'epoch', 'lease_id', 'pool', 'review', 'priority', 'mandatory',
    'cancel_asked', 'due_at', 'key', 'assignee', 'attempts', 'ready_at', ...)
  local status, lease = v[1], v[4] or ''
  if not status then return nil end
  local t = setmetatable({ id = id, status = status, goal = v[2] or '', epoch = tonumber(v[3]) or 0, lease_id = lease,
    pool = v[5] or '', review = v[6] or '', priority = v[7] or '', mandatory = v[8] or '', cancel_asked = v[9] or '',
    due_at = v[10] or '', lane = false, key = v[11] or '', assignee = v[12] or '', attempts = v[13] or '', ready_at = v[14] or '',
    owned = (status == 'running' or status == 'reviewing') and lease ~= '' }, LAZY)
  for i = 1, select('#', ...) do t[select(i, ...)] = v[14 + i] or '' end
  return t
end

-- Goals, read once a script -----------------------------------------------------------------------
local GF = { 'state', 'paused', 'in_flight', 'in_flight_max', 'tenant', 'open_mandatory', 'sealed', 'root', 'epoch',
  'lease_id', 'mq', 'late', 'broke', 'caps', 'plan_version', 'last_step', 'losses', 'stalls', 'version', 'dry' }
local GC = {}
local function goal_of(goal)
  local g = GC[goal]
  if g then return g end
  local v = rcall('HMGET', gk(goal), unpack(GF))
  if not v[1] then return nil end
  g = { id = goal }
  for i, f in ipairs(GF) do g[f] = v[i] or '' end
  for _, f in ipairs({ 'in_flight', 'in_flight_max', 'open_mandatory', 'epoch', 'plan_version', 'losses', 'stalls' }) do
    g[f] = tonumber(g[f]) or 0
  end
  GC[goal] = g
  return g
end
local function cap_of(g, name)
  if not g.cap_table then g.cap_table = cjson.decode(g.caps) end
  -- A cap that this goal's version did not know yet.
  return tonumber(g.cap_table[name]) or 3
end

-- What many tickets of one call change together is kept here and written once, by flush.
local deltas, tokens, laned, ringed = {}, {}, {}, {}
local logged = {} -- goals whose log grew: trimmed once a call, by flush
local leases, demands = {}, {} -- ticket -> expiry or false; lane -> ticket -> in it or not
local function demand(lane, id, counts)
  local of = demands[lane]
  if not of then of = {}; demands[lane] = of end
  of[id] = counts
end
-- Command, key, and any number of members: in pieces, since unpack has an end.
local function many(words)
  for i = 3, #words, 1000 do rcall(words[1], words[2], unpack(words, i, math.min(i + 999, #words))) end
end
-- Where tickets stand, in one command for each place. A script that looks at a place after it moved tickets calls this before.
local function flush_places()
  local add, rem = { 'ZADD', P .. 'lease' }, { 'ZREM', P .. 'lease' }
  for id, expiry in pairs(leases) do
    if expiry then add[#add + 1] = expiry; add[#add + 1] = id else rem[#rem + 1] = id end
  end
  many(add); many(rem)
  for lane, of in pairs(demands) do
    add, rem = { 'SADD', P .. 'dem:' .. lane }, { 'SREM', P .. 'dem:' .. lane }
    for id, counts in pairs(of) do
      if counts then add[#add + 1] = id else rem[#rem + 1] = id end
    end
    many(add); many(rem)
  end
  leases, demands = {}, {}
end
local function add(goal, field, d)
  local of = deltas[goal]
  if not of then of = {}; deltas[goal] = of end
  of[field] = (of[field] or 0) + d
end
local function token(lane) tokens[lane] = (tokens[lane] or 0) + 1 end
-- The loader calls it when the script has returned its answer, and also when it broke off: what moved until then stands whole.
local function flush()
  flush_places()
  for goal in pairs(logged) do rcall('XTRIM', gk(goal) .. ':ev', 'MAXLEN', '~', EVENTS_MAX) end
  for goal, of in pairs(deltas) do
    for field, d in pairs(of) do
      if d ~= 0 then rcall('HINCRBY', gk(goal), field, d) end
    end
  end
  for lane, n in pairs(tokens) do
    local k = P .. 'wk:' .. lane
    local room = math.min(n, TOKENS_MAX - rcall('LLEN', k))
    local new = {}
    for i = 1, room do new[i] = '1' end
    if room > 0 then rcall('RPUSH', k, unpack(new)) end
  end
end

-- One entry a transition (L6); when it was is in the entry's id, by this clock. Always the same fields: the stream stores their names once a node then.
local NOBODY = { id = '', key = '', epoch = '' }
local HOOKS_MAX = 10000
local HOOKED = { needs_human = true, awaiting_approval = true, done = true, failed = true, cancelled = true }
-- What is told to the outside, if anybody sends it: what needs a person, and the end of a goal. The oldest go first.
local function hook(goal, entry, word, t, to, detail)
  if rcall('HGET', P .. 'ctl', 'hooks') ~= '1' then return end
  local id = goal .. ':' .. entry
  rcall('HSET', P .. 'hook', id, cjson.encode({ v = 1, id = id, goal = goal, ticket = t.key or '', event = word, state = to,
    detail = string.sub(detail or '', 1, 1024), at_ms = NOW, tries = 0 }))
  rcall('ZADD', P .. 'hooks', NOW, id)
  if rcall('ZCARD', P .. 'hooks') > HOOKS_MAX then
    local oldest = rcall('ZRANGE', P .. 'hooks', 0, 0)[1]
    rcall('ZREM', P .. 'hooks', oldest)
    rcall('HDEL', P .. 'hook', oldest)
  end
end
local function event(goal, word, t, from, to, who, detail)
  t = t or NOBODY
  logged[goal] = true
  local entry = rcall('XADD', gk(goal) .. ':ev', '*', 'event', word, 'ticket', t.id,
    'key', t.key, 'epoch', t.epoch, 'from', from or '', 'to', to or '', 'who', who or '', 'detail', detail or '')
  -- Of a ticket what waits for a person, of a goal (it has no key) its end too.
  if HOOKED[to] and from ~= to and (t.id == '' or to == 'needs_human' or to == 'awaiting_approval') then
    hook(goal, entry, word, t, to, detail)
  end
end

-- The goal's manager hears of it: at most one entry a goal in q:manage, none while a manager holds it.
local function wake(g)
  if g.lease_id == '' and g.mq ~= '1' and not OVER[g.state] then
    g.mq = '1'
    rcall('HSET', gk(g.id), 'mq', '1')
    rcall('RPUSH', P .. 'q:manage', g.id)
    token('manage')
  end
end
local function inbox(g, kind, t, detail)
  if OVER[g.state] then return end
  if kind == 'all_closed' then -- once a call is enough, whatever the number of tickets that ended in it
    if g.told then return end
    g.told = true
  end
  rcall('RPUSH', gk(g.id) .. ':in', cjson.encode({ v = 1, kind = kind, ticket = t and t.id or '',
    epoch = t and t.epoch or 0, detail = detail or '', at_ms = NOW }))
  wake(g)
end

-- Fairness: rings of goals with ready work, one a lane and priority --------------------------------
local function claimable(g, work)
  return (g.state == 'running' or g.state == 'needs_human') and g.paused ~= '1' and g.late ~= '1' and g.broke ~= '1'
    and not (work and g.in_flight_max > 0 and g.in_flight >= g.in_flight_max)
end
local function ring_add(g, lane, prio)
  if not claimable(g, lane ~= 'review') then return end
  local ring = P .. 'ring:' .. lane .. ':' .. prio
  if ringed[ring .. g.id] then return end
  ringed[ring .. g.id] = true
  if rcall('ZSCORE', ring, g.id) then return end
  -- A goal that comes in starts at the present minimum: no credit for the time it was away.
  local first = rcall('ZRANGE', ring, 0, 0, 'WITHSCORES')
  rcall('ZADD', ring, first[2] or 0, g.id)
  rcall('HINCRBY', P .. 'tn:' .. lane .. ':' .. prio, g.tenant, 1)
end
local function ring_remove(g, lane, prio)
  ringed[P .. 'ring:' .. lane .. ':' .. prio .. g.id] = nil
  if rcall('ZREM', P .. 'ring:' .. lane .. ':' .. prio, g.id) == 1 then
    local tn = P .. 'tn:' .. lane .. ':' .. prio
    if rcall('HINCRBY', tn, g.tenant, -1) <= 0 then rcall('HDEL', tn, g.tenant) end
  end
end
-- The tenant's goals share its turns: how much a pop costs one of them.
local function ring_mates(g, lane, prio)
  return math.max(tonumber(rcall('HGET', P .. 'tn:' .. lane .. ':' .. prio, g.tenant)) or 1, 1)
end
local function ring_pass(g, lane, prio, cost)
  if cost > 0 then rcall('ZINCRBY', P .. 'ring:' .. lane .. ':' .. prio, cost, g.id) end
end
local function each_lane(g, f)
  for _, lp in ipairs(rcall('SMEMBERS', gk(g.id) .. ':lanes')) do
    local lane, prio = string.match(lp, '^(.*):(%d)$')
    f(lane, prio)
  end
end
-- Un-park: whatever is ready may be claimed again.
local function rings_open(g)
  each_lane(g, function(lane, prio)
    if rcall('LLEN', gk(g.id) .. ':q:' .. lane .. ':' .. prio) > 0 then
      ring_add(g, lane, prio)
      token(lane)
    end
  end)
end
local function rings_close(g) each_lane(g, function(lane, prio) ring_remove(g, lane, prio) end) end

-- Deliveries ----------------------------------------------------------------------------------------
-- The same bytes as codec.rs writes (golden test): header, then bincode with fixed little-endian integers.
local function envelope(kind, t)
  return '1' .. t.id .. ':' .. string.format('%010d', t.epoch) .. '|' .. struct.pack('<I4', kind)
    .. struct.pack('<I8', #t.id) .. t.id .. struct.pack('<I8', t.epoch)
    .. struct.pack('<I8', #t.traceparent) .. t.traceparent .. struct.pack('<I8', NOW)
end
local function dead(lane, raw, reason)
  rcall('RPUSH', P .. 'dead', cjson.encode({ at_ms = NOW, lane = lane, reason = reason }) .. '\n' .. raw)
  rcall('LTRIM', P .. 'dead', -DEAD_MAX, -1)
end
local function lane_of(t, status)
  if status == 'reviewing' then return 'review' end
  if not t.lane then t.lane = 'work.' .. t.pool end
  return t.lane
end
-- Which lane's demand a ticket counts in: ready or leased, not delayed.
local function demand_lane(t, status, due)
  if status == 'running' then return lane_of(t, status) end
  if (status == 'pending' or status == 'rejected' or status == 'reviewing') and not due then return lane_of(t, status) end
  return nil
end
local function push_ready(g, t, status, head)
  local lane = lane_of(t, status)
  local raw = envelope(status == 'reviewing' and 1 or 0, t)
  local list = gk(g.id) .. ':q:' .. lane .. ':' .. t.priority
  rcall(head and 'LPUSH' or 'RPUSH', list, raw)
  if not laned[g.id .. lane .. t.priority] then
    laned[g.id .. lane .. t.priority] = true
    rcall('SADD', gk(g.id) .. ':lanes', lane .. ':' .. t.priority)
    rcall('SADD', P .. 'lanes', lane)
  end
  ring_add(g, lane, t.priority)
  token(lane)
  return raw
end

-- Dependents and dead needs that the sweeper still has to tell: kind|ticket|epoch|generation|offset.
local function fan_push(kind, t, offset)
  rcall('RPUSH', P .. 'fan', kind .. '|' .. t.id .. '|' .. t.epoch .. '|' .. t.generation .. '|' .. offset)
end

-- The one way a ticket changes (I2). It leaves its old place, gets the next epoch (I3) and enters the new one.
-- o: set (flat field list), delay (ms), expiry (ms), head, lease (id), lease_until (ms), who, detail, word, quiet
local function move(t, to, o)
  o = o or {}
  -- The request to cancel wins over every other row.
  local forced = t.cancel_asked == '1' and not TERMINAL[to]
  if forced then
    to = 'cancelled'
    o = { set = o.set, who = o.who, detail = o.detail }
  end
  local g = goal_of(t.goal)
  local from, from_due = t.status, t.due_at ~= '' and t.due_at ~= '0'
  -- leave
  if t.owned then leases[t.id] = false end
  local unpark = false
  if from == 'running' then
    unpark = g.in_flight_max > 0 and g.in_flight >= g.in_flight_max
    g.in_flight = g.in_flight - 1
    add(g.id, 'in_flight', -1)
  elseif from == 'escalated' then
    rcall('SREM', gk(g.id) .. ':esc', t.id)
  elseif from == 'blocked' then
    rcall('SREM', gk(g.id) .. ':dead', t.id)
  elseif from == 'awaiting_approval' or from == 'needs_human' then
    rcall('ZREM', P .. 'ask', t.id)
  elseif from_due then
    rcall('ZREM', P .. 'delay', t.id)
  end
  if t.cancel_asked == '1' then rcall('ZREM', P .. 'cancelling', t.id) end
  -- change
  t.epoch = t.epoch + 1
  t.status = to
  local lease, old_due = o.lease or '', t.due_at
  t.owned = o.lease ~= nil
  local delayed = (to == 'pending' or to == 'rejected' or to == 'reviewing') and not o.lease and (o.delay or 0) > 0
  local due = ''
  if delayed then due = NOW + o.delay end
  if o.expiry and (to == 'needs_human' or to == 'awaiting_approval') then due = NOW + o.expiry end
  t.due_at = due == '' and due or string.format('%.0f', due)
  local set, n = { 'status', to, 'epoch', string.format('%d', t.epoch), 'updated_at', NOWS }, 6
  if lease ~= t.lease_id then set[n + 1] = 'lease_id'; set[n + 2] = lease; n = n + 2 end
  if t.due_at ~= old_due then set[n + 1] = 'due_at'; set[n + 2] = t.due_at; n = n + 2 end
  t.lease_id = lease
  if t.cancel_asked == '1' and TERMINAL[to] then
    set[n + 1] = 'cancel_asked'; set[n + 2] = ''; n = n + 2
    t.cancel_asked = ''
  end
  -- enter
  if t.owned then
    leases[t.id] = o.lease_until
    set[n + 1] = 'started_at'; set[n + 2] = NOWS; set[n + 3] = 'assignee'; set[n + 4] = o.who
    n = n + 4
    t.assignee = o.who
    if to == 'running' then
      g.in_flight = g.in_flight + 1
      add(g.id, 'in_flight', 1)
    end
  elseif delayed then
    rcall('ZADD', P .. 'delay', due, t.id)
    set[n + 1] = 'delivery'; set[n + 2] = ''; n = n + 2
  elseif to == 'pending' or to == 'rejected' or to == 'reviewing' then
    set[n + 1] = 'ready_at'; set[n + 2] = NOWS; set[n + 3] = 'delivery'; set[n + 4] = push_ready(g, t, to, o.head)
    n = n + 4
  elseif to == 'awaiting_approval' or to == 'needs_human' then
    rcall('ZADD', P .. 'ask', due, t.id)
  elseif to == 'escalated' then
    rcall('SADD', gk(g.id) .. ':esc', t.id)
  end
  local old_lane, new_lane = demand_lane(t, from, from_due), demand_lane(t, to, delayed)
  if old_lane ~= new_lane then
    if old_lane then demand(old_lane, t.id, false) end
    if new_lane then demand(new_lane, t.id, true) end
  end
  local more = o.set or {}
  for i = 1, #more do set[n + i] = more[i] end
  rcall('HSET', hk(t.id), unpack(set))
  if from ~= to then
    add(g.id, 'n:' .. from, -1)
    add(g.id, 'n:' .. to, 1)
  end
  event(g.id, o.word or to, t, from, to, o.who or t.assignee, o.detail)
  -- the goal
  if t.mandatory == '1' and (TERMINAL[from] or false) ~= (TERMINAL[to] or false) then
    local d = TERMINAL[to] and -1 or 1
    g.open_mandatory = g.open_mandatory + d
    add(g.id, 'open_mandatory', d)
  end
  if to == 'escalated' then inbox(g, 'escalated', t, o.cause) end
  if to == 'skipped' or to == 'failed' or to == 'cancelled' then inbox(g, 'ended_not_done', t, o.detail or to) end
  if TERMINAL[to] and not TERMINAL[from] and g.open_mandatory <= 0 then inbox(g, 'all_closed', t, '') end
  if unpark then rings_open(g) end
  if forced and not OVER[g.state] then fan_push('end', t, 0) end
  -- It may wait for something that has ended already.
  if to == 'blocked' then fan_push('dead', t, 0) end
end

-- Whether nobody has it and anybody may: in a ready list, or with a due time in the delays.
local function unowned(t)
  return t.status == 'pending' or t.status == 'rejected' or (t.status == 'reviewing' and not t.owned)
end
local function needs_open(t) return rcall('SCARD', hk(t.id) .. ':d') > 0 end
-- Any row to pending or rejected goes to blocked while needs are open.
local function move_to_work(t, to, o)
  if needs_open(t) then to = 'blocked'; o.delay = nil end
  move(t, to, o)
  return to
end
