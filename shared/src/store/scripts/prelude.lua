-- What every script begins with: keys, reading, and the one way in which a ticket changes (move).
-- KEYS[1] is <prefix>ctl; every other key is derived from it and carries the same hash tag.
-- Rule: read and validate everything first, write afterwards; a Lua error does not roll back.
local P = string.sub(KEYS[1], 1, -4)
local TIME = redis.call('TIME') -- once: two calls in one script may differ
local NOW = TIME[1] * 1000 + math.floor(TIME[2] / 1000)
local PAGE = 100
local TOKENS_MAX = 64
local EVENTS_MAX = 10000
local DEAD_MAX = 10000
local TERMINAL = { done = true, skipped = true, superseded = true, failed = true, cancelled = true }
local OVER = { done = true, failed = true, cancelled = true }
local COUNTERS = { 'faults', 'losses', 'waits', 'releases', 'conflicts', 'asks',
  'review_faults', 'review_losses', 'review_releases' }

local function hk(id) return P .. 't:' .. id end
local function gk(goal) return P .. 'g:' .. goal end

-- Tickets -----------------------------------------------------------------------------------------
local TF = { 'status', 'goal', 'epoch', 'lease_id', 'pool', 'review', 'priority', 'mandatory', 'needs_policy',
  'cancel_asked', 'cause', 'revision', 'generation', 'work_acc', 'review_acc', 'due_at', 'traceparent', 'key',
  'assignee', 'attempts', 'reviews', 'ready_at', 'work_actor', 'started_at', 'progress_at', 'delivery', 'permit' }

local function load(id)
  local v = redis.call('HMGET', hk(id), unpack(TF))
  if not v[1] then return nil end
  local t = { id = id }
  for i, f in ipairs(TF) do t[f] = v[i] or '' end
  t.epoch = tonumber(t.epoch) or 0
  t.owned = (t.status == 'running' or t.status == 'reviewing') and t.lease_id ~= ''
  return t
end

-- Goals, read once a script -----------------------------------------------------------------------
local GF = { 'state', 'paused', 'in_flight', 'in_flight_max', 'tenant', 'open_mandatory', 'sealed', 'root', 'epoch',
  'lease_id', 'mq', 'late', 'broke', 'caps', 'plan_version', 'last_step', 'losses', 'stalls', 'version' }
local GC = {}
local function goal_of(goal)
  local g = GC[goal]
  if g then return g end
  local v = redis.call('HMGET', gk(goal), unpack(GF))
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
  return g.cap_table[name]
end

-- What many tickets of one call change together is kept here and written once, by flush.
local deltas, tokens, laned, ringed = {}, {}, {}, {}
local function add(goal, field, d)
  local of = deltas[goal]
  if not of then of = {}; deltas[goal] = of end
  of[field] = (of[field] or 0) + d
end
local function token(lane) tokens[lane] = (tokens[lane] or 0) + 1 end
-- The loader calls it when the script has returned its answer.
local function flush()
  for goal, of in pairs(deltas) do
    for field, d in pairs(of) do
      if d ~= 0 then redis.call('HINCRBY', gk(goal), field, d) end
    end
  end
  for lane, n in pairs(tokens) do
    local k = P .. 'wk:' .. lane
    local room = math.min(n, TOKENS_MAX - redis.call('LLEN', k))
    local new = {}
    for i = 1, room do new[i] = '1' end
    if room > 0 then redis.call('RPUSH', k, unpack(new)) end
  end
end

-- One entry a transition (L6); empty fields are left out.
local function event(goal, word, t, from, to, who, detail)
  local e = { 'XADD', gk(goal) .. ':ev', 'MAXLEN', '~', EVENTS_MAX, '*', 'at', NOW, 'event', word }
  local n = 10
  local function put(f, v) if v and v ~= '' then e[n + 1] = f; e[n + 2] = v; n = n + 2 end end
  if t then
    put('ticket', t.id); put('key', t.key); put('epoch', t.epoch)
  end
  put('from', from); put('to', to); put('who', who); put('detail', detail)
  redis.call(unpack(e))
end

-- The goal's manager hears of it: at most one entry a goal in q:manage, none while a manager holds it.
local function wake(g)
  if g.lease_id == '' and g.mq ~= '1' and not OVER[g.state] then
    g.mq = '1'
    redis.call('HSET', gk(g.id), 'mq', '1')
    redis.call('RPUSH', P .. 'q:manage', g.id)
    token('manage')
  end
end
local function inbox(g, kind, t, detail)
  if OVER[g.state] then return end
  redis.call('RPUSH', gk(g.id) .. ':in', cjson.encode({ v = 1, kind = kind, ticket = t and t.id or '',
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
  if redis.call('ZSCORE', ring, g.id) then return end
  -- A goal that comes in starts at the present minimum: no credit for the time it was away.
  local first = redis.call('ZRANGE', ring, 0, 0, 'WITHSCORES')
  redis.call('ZADD', ring, first[2] or 0, g.id)
  redis.call('HINCRBY', P .. 'tn:' .. lane .. ':' .. prio, g.tenant, 1)
end
local function ring_remove(g, lane, prio)
  ringed[P .. 'ring:' .. lane .. ':' .. prio .. g.id] = nil
  if redis.call('ZREM', P .. 'ring:' .. lane .. ':' .. prio, g.id) == 1 then
    local tn = P .. 'tn:' .. lane .. ':' .. prio
    if redis.call('HINCRBY', tn, g.tenant, -1) <= 0 then redis.call('HDEL', tn, g.tenant) end
  end
end
-- After a pop: the tenant's goals share its turns.
local function ring_pass(g, lane, prio)
  local mates = tonumber(redis.call('HGET', P .. 'tn:' .. lane .. ':' .. prio, g.tenant)) or 1
  redis.call('ZINCRBY', P .. 'ring:' .. lane .. ':' .. prio, math.max(mates, 1), g.id)
end
local function each_lane(g, f)
  for _, lp in ipairs(redis.call('SMEMBERS', gk(g.id) .. ':lanes')) do
    local lane, prio = string.match(lp, '^(.*):(%d)$')
    f(lane, prio)
  end
end
-- Un-park: whatever is ready may be claimed again.
local function rings_open(g)
  each_lane(g, function(lane, prio)
    if redis.call('LLEN', gk(g.id) .. ':q:' .. lane .. ':' .. prio) > 0 then
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
  redis.call('RPUSH', P .. 'dead', cjson.encode({ at_ms = NOW, lane = lane, reason = reason }) .. '\n' .. raw)
  redis.call('LTRIM', P .. 'dead', -DEAD_MAX, -1)
end
local function lane_of(t, status)
  if status == 'reviewing' then return 'review' end
  return 'work.' .. t.pool
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
  redis.call(head and 'LPUSH' or 'RPUSH', list, raw)
  if not laned[g.id .. lane .. t.priority] then
    laned[g.id .. lane .. t.priority] = true
    redis.call('SADD', gk(g.id) .. ':lanes', lane .. ':' .. t.priority)
    redis.call('SADD', P .. 'lanes', lane)
  end
  ring_add(g, lane, t.priority)
  token(lane)
  return raw
end

-- Dependents and dead needs that the sweeper still has to tell: kind|ticket|epoch|generation|offset.
local function fan_push(kind, t, offset)
  redis.call('RPUSH', P .. 'fan', kind .. '|' .. t.id .. '|' .. t.epoch .. '|' .. t.generation .. '|' .. offset)
end

-- The one way a ticket changes (I2). It leaves its old place, gets the next epoch (I3) and enters the new one.
-- o: set (flat field list), delay (ms), expiry (ms), head, lease (id), lease_ms, who, detail, word, quiet
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
  if t.owned then redis.call('ZREM', P .. 'lease', t.id) end
  local unpark = false
  if from == 'running' then
    unpark = g.in_flight_max > 0 and g.in_flight >= g.in_flight_max
    g.in_flight = g.in_flight - 1
    add(g.id, 'in_flight', -1)
  elseif from == 'escalated' then
    redis.call('SREM', gk(g.id) .. ':esc', t.id)
  elseif from == 'blocked' then
    redis.call('SREM', gk(g.id) .. ':dead', t.id)
  elseif from == 'awaiting_approval' or from == 'needs_human' then
    redis.call('ZREM', P .. 'ask', t.id)
  elseif from_due then
    redis.call('ZREM', P .. 'delay', t.id)
  end
  if t.cancel_asked == '1' then redis.call('ZREM', P .. 'cancelling', t.id) end
  -- change
  t.epoch = t.epoch + 1
  t.status = to
  t.lease_id = o.lease or ''
  t.owned = o.lease ~= nil
  local delayed = (to == 'pending' or to == 'rejected' or to == 'reviewing') and not o.lease and (o.delay or 0) > 0
  local due = ''
  if delayed then due = NOW + o.delay end
  if o.expiry and (to == 'needs_human' or to == 'awaiting_approval') then due = NOW + o.expiry end
  t.due_at = tostring(due)
  local set = { 'status', to, 'epoch', t.epoch, 'lease_id', t.lease_id, 'updated_at', NOW, 'due_at', due }
  local function put(f, v) set[#set + 1] = f; set[#set + 1] = v end
  if t.cancel_asked == '1' and TERMINAL[to] then put('cancel_asked', ''); t.cancel_asked = '' end
  -- enter
  if t.owned then
    redis.call('ZADD', P .. 'lease', NOW + o.lease_ms, t.id)
    put('started_at', NOW); put('progress_at', NOW); put('assignee', o.who)
    t.assignee = o.who
    if to == 'running' then
      g.in_flight = g.in_flight + 1
      add(g.id, 'in_flight', 1)
    end
  elseif delayed then
    redis.call('ZADD', P .. 'delay', due, t.id)
    put('delivery', '')
  elseif to == 'pending' or to == 'rejected' or to == 'reviewing' then
    put('ready_at', NOW)
    put('delivery', push_ready(g, t, to, o.head))
  elseif to == 'awaiting_approval' or to == 'needs_human' then
    redis.call('ZADD', P .. 'ask', due, t.id)
  elseif to == 'escalated' then
    redis.call('SADD', gk(g.id) .. ':esc', t.id)
  end
  local old_lane, new_lane = demand_lane(t, from, from_due), demand_lane(t, to, delayed)
  if old_lane ~= new_lane then
    if old_lane then redis.call('SREM', P .. 'dem:' .. old_lane, t.id) end
    if new_lane then redis.call('SADD', P .. 'dem:' .. new_lane, t.id) end
  end
  for i = 1, #(o.set or {}) do set[#set + 1] = o.set[i] end
  redis.call('HSET', hk(t.id), unpack(set))
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
local function needs_open(t) return redis.call('SCARD', hk(t.id) .. ':d') > 0 end
-- Any row to pending or rejected goes to blocked while needs are open.
local function move_to_work(t, to, o)
  if needs_open(t) then to = 'blocked'; o.delay = nil end
  move(t, to, o)
  return to
end

-- Needs (L4: once per generation) --------------------------------------------------------------------
local function settle_need(dep_id, need, outcome)
  local dep = load(dep_id)
  if not dep then return end
  local met = outcome == 'done' or dep.needs_policy == 'run'
  if met then
    local removed = redis.call('SREM', hk(dep_id) .. ':d', need)
    if removed == 1 and dep.status == 'blocked' and not needs_open(dep) then
      move(dep, 'pending', { word = 'ready', who = 'fleet' })
    end
  elseif not TERMINAL[dep.status] then
    if dep.needs_policy == 'skip' then
      move(dep, 'skipped', { who = 'fleet', detail = 'need ' .. need .. ' ended ' .. outcome })
      fan_push('end', dep, 0)
    else
      redis.call('SADD', gk(dep.goal) .. ':dead', dep.id)
      inbox(goal_of(dep.goal), 'dead_need', dep, need)
    end
  end
end
-- Dependents of a ticket that ended, from an offset; true when more are left.
local function settle_page(id, outcome, offset)
  local deps = redis.call('ZRANGE', hk(id) .. ':o', offset, offset + PAGE - 1)
  for _, d in ipairs(deps) do settle_need(d, id, outcome) end
  return #deps == PAGE
end
-- A new ticket, blocked and last in its goal's order: fields and values in turn, list[first .. last].
local function create(g, id, order, list, first, last)
  local set = { 'status', 'blocked', 'epoch', 1, 'lease_id', '', 'goal', g.id, 'created_at', NOW, 'updated_at', NOW }
  for f = first, last, 2 do
    set[#set + 1] = list[f]; set[#set + 1] = list[f + 1]
    if list[f] == 'mandatory' and list[f + 1] == '1' then
      g.open_mandatory = g.open_mandatory + 1
      add(g.id, 'open_mandatory', 1)
    end
  end
  redis.call('HSET', hk(id), unpack(set))
  redis.call('ZADD', gk(g.id) .. ':t', order, id)
  add(g.id, 'n:blocked', 1)
  add(g.id, 'tickets', 1)
end
-- Called after a move to a terminal state: dependents of a done one at once, up to a page.
local function ended(t)
  if OVER[goal_of(t.goal).state] then return end
  if t.status == 'done' then
    if settle_page(t.id, 'done', 0) then fan_push('end', t, PAGE) end
  else
    fan_push('end', t, 0)
  end
end
-- Needs of a blocked ticket that will never be met: its policy decides.
local function settle_dead(id)
  for _, need in ipairs(redis.call('SMEMBERS', hk(id) .. ':d')) do
    local status = redis.call('HGET', hk(need), 'status')
    if status and TERMINAL[status] and status ~= 'done' then settle_need(id, need, status) end
  end
end
-- A need is open again: its dependents, and theirs, become blocked (pages through fan).
local function reopen_need(dep_id, need, need_done)
  local dep = load(dep_id)
  if not dep or (TERMINAL[dep.status] and dep.status ~= 'done') then return end
  if not need_done then redis.call('SADD', hk(dep_id) .. ':d', need) end
  dep.generation = (tonumber(dep.generation) or 0) + 1
  local was_done = dep.status == 'done'
  move(dep, 'blocked', { word = 'stale', who = 'fleet', detail = 'need ' .. need .. ' was reopened',
    set = { 'generation', dep.generation, 'permit', '' } })
  if was_done then fan_push('open', dep, 0) end
  if need_done and not needs_open(dep) then move(dep, 'pending', { word = 'ready', who = 'fleet' }) end
end

-- Notes of people and facts of accepted work, each fact once; the oldest go first.
local LIST_MAX = 500
local function keep_last(goal, list, text)
  redis.call('RPUSH', gk(goal) .. list, text)
  redis.call('LTRIM', gk(goal) .. list, -LIST_MAX, -1)
end
local function add_note(goal, text) if text ~= '' then keep_last(goal, ':notes', text) end end
local function add_fact(goal, text)
  if text ~= '' and not redis.call('LPOS', gk(goal) .. ':facts', text) then keep_last(goal, ':facts', text) end
end
local function add_conclusions(goal, report)
  if not string.find(report, '"conclusions":["', 1, true) then return end
  local ok, r = pcall(cjson.decode, report)
  if not ok or type(r.conclusions) ~= 'table' then return end
  for _, c in ipairs(r.conclusions) do
    if type(c) == 'string' then add_fact(goal, string.sub(c, 1, 4096)) end
  end
end

-- Accepted: the files and the state in the same step (I5). `roots` is nil when there are no files.
local function accept(t, roots, report, o)
  local g = goal_of(t.goal)
  if roots then
    if g.root ~= roots.base then return 'MOVED' end
    redis.call('HSET', gk(g.id), 'root', roots.new)
    g.root = roots.new
  end
  add_conclusions(g.id, report)
  move(t, 'done', o)
  ended(t)
  return 'OK'
end

-- Counting (I8) and caps (I11) ------------------------------------------------------------------------
local function escalate(t, cause, o)
  o.set = o.set or {}
  local n = #o.set
  o.set[n + 1] = 'cause'; o.set[n + 2] = cause
  o.set[n + 3] = 'cause_detail'; o.set[n + 4] = string.sub(o.detail or '', 1, 4096)
  o.cause = cause
  move(t, 'escalated', o)
  return 'escalated'
end
-- One more of `counter`; the cap reached escalates, otherwise the ticket goes to `to`.
local function count(t, counter, to, o)
  local n = (tonumber(redis.call('HGET', hk(t.id), counter)) or 0) + 1
  o.set = o.set or {}
  o.set[#o.set + 1] = counter; o.set[#o.set + 1] = n
  if n >= cap_of(goal_of(t.goal), counter) then return escalate(t, counter, o) end
  if to == 'pending' or to == 'rejected' then return move_to_work(t, to, o) end
  move(t, to, o)
  return to
end
local function reset_counters(set)
  for _, c in ipairs(COUNTERS) do set[#set + 1] = c; set[#set + 1] = 0 end
  set[#set + 1] = 'cause'; set[#set + 1] = ''
  set[#set + 1] = 'cause_detail'; set[#set + 1] = ''
  return set
end

-- Whether this write is the owner's (I3): nil when it is, else the answer.
local function not_owner(t, epoch, lease, phase)
  if not t then return 'GONE' end
  if t.owned and t.epoch == tonumber(epoch) and t.lease_id == lease then
    if not OVER[(goal_of(t.goal) or { state = 'failed' }).state] then return nil end
    if goal_of(t.goal) then move(t, 'cancelled', { detail = 'the goal is over' }) end
    return 'GONE'
  end
  if t[phase] == epoch .. ':' .. lease then return 'DUP' end
  return 'FENCED'
end
-- The request to cancel wins over every other outcome.
local function cancelled_instead(t, acc, o)
  if t.cancel_asked ~= '1' then return false end
  o.set = o.set or {}
  o.set[#o.set + 1] = acc[1]; o.set[#o.set + 1] = acc[2]
  move(t, 'cancelled', o)
  ended(t)
  return true
end

-- The goal ends or waits --------------------------------------------------------------------------------
local function end_goal(g, state, who, cause, detail)
  rings_close(g)
  redis.call('ZREM', P .. 'lease', 'g:' .. g.id)
  redis.call('ZREM', P .. 'ask', 'g:' .. g.id)
  redis.call('ZREM', P .. 'dl', g.id)
  redis.call('ZREM', P .. 'live', g.id)
  redis.call('DEL', gk(g.id) .. ':in')
  redis.call('SREM', P .. 'sealing', g.id)
  redis.call('ZADD', P .. 'done', NOW, g.id)
  redis.call('SADD', P .. 'ending', g.id)
  redis.call('HSET', gk(g.id), 'state', state, 'lease_id', '', 'epoch', g.epoch + 1, 'updated_at', NOW, 'cause', cause or '',
    'cause_detail', string.sub(detail or '', 1, 4096), 'due_at', '', 'mq', '', 'end_cursor', 0)
  event(g.id, 'goal_' .. state, nil, g.state, state, who, detail ~= '' and detail or cause)
  g.state = state
  g.lease_id = ''
end
local function goal_to_person(g, who, cause, detail, expiry)
  redis.call('ZADD', P .. 'ask', NOW + expiry, 'g:' .. g.id)
  redis.call('HSET', gk(g.id), 'state', 'needs_human', 'updated_at', NOW, 'cause', cause,
    'cause_detail', string.sub(detail or '', 1, 4096), 'due_at', NOW + expiry)
  event(g.id, 'goal_needs_human', nil, g.state, 'needs_human', who, cause .. ': ' .. (detail or ''))
  g.state = 'needs_human'
end
-- Whether a manager's call carries the goal's lease: nil when it does, else the answer.
local function not_manager(g, epoch, lease)
  if not g or OVER[g.state] then return 'GONE' end
  if g.lease_id ~= '' and g.lease_id == lease and g.epoch == tonumber(epoch) then return nil end
  return 'FENCED'
end

-- The ledger ----------------------------------------------------------------------------------------------
-- A reservation is one field of g:<goal>:res (tokens|millionths of a dollar|ticket) and one member of the zset res;
-- the goal's reserved_tokens is their sum.   answers the three parts, or nil when it is not there any more
local function unreserve(goal, call)
  local kept = redis.call('HGET', gk(goal) .. ':res', call)
  redis.call('ZREM', P .. 'res', goal .. '|' .. call)
  if not kept then return nil end
  redis.call('HDEL', gk(goal) .. ':res', call)
  local tokens, money, ticket = string.match(kept, '^(%d+)|(%d+)|(%x*)$')
  redis.call('HINCRBY', gk(goal), 'reserved_tokens', -tonumber(tokens))
  return tokens, money, ticket
end
-- What was spent stands on the goal, and on the ticket while it is there.
local function spend(goal, id, tokens, money)
  redis.call('HINCRBY', gk(goal), 'spent_tokens', tokens)
  redis.call('HINCRBY', gk(goal), 'spent_microusd', money)
  local t = id ~= '' and load(id) or nil
  if t then
    redis.call('HINCRBY', hk(id), 'spent_tokens', tokens)
    redis.call('HINCRBY', hk(id), 'spent_microusd', money)
  end
  return t
end
