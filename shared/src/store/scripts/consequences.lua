-- What follows when a ticket changes: needs are met, attempts are counted, goals end, money is booked. It stands behind the
-- prelude, in front of every script.
-- Needs (L4: once per generation) --------------------------------------------------------------------
local function settle_need(dep_id, need, outcome)
  local dep = load(dep_id)
  if not dep then return end
  local met = outcome == 'done' or dep.needs_policy == 'run'
  if met then
    local removed = rcall('SREM', hk(dep_id) .. ':d', need)
    if removed == 1 and dep.status == 'blocked' and not needs_open(dep) then
      move(dep, 'pending', { word = 'ready', who = 'fleet' })
    end
  elseif not TERMINAL[dep.status] then
    if dep.needs_policy == 'skip' then
      move(dep, 'skipped', { who = 'fleet', detail = 'need ' .. need .. ' ended ' .. outcome })
      fan_push('end', dep, 0)
    else
      rcall('SADD', gk(dep.goal) .. ':dead', dep.id)
      inbox(goal_of(dep.goal), 'dead_need', dep, need)
    end
  end
end
-- Dependents of a ticket that ended, from an offset; true when more are left. What one call settles is bounded, however
-- many tickets of a batch end in it: the rest goes to the sweeper, so that Redis is not held for long.
local settled = 0
local function settle_page(id, outcome, offset)
  local deps = rcall('ZRANGE', hk(id) .. ':o', offset, offset + PAGE - 1)
  for _, d in ipairs(deps) do settle_need(d, id, outcome) end
  settled = settled + #deps
  return #deps == PAGE
end
-- One goal, one trace: its tickets carry it over every hop.
local function trace_of(g)
  if not g.trace then g.trace = rcall('HGET', gk(g.id), 'traceparent') or '' end
  return g.trace
end
-- A new ticket, blocked and last in its goal's order: fields and values in turn, list[first .. last].
local function create(g, id, order, list, first, last)
  local set = { 'status', 'blocked', 'epoch', 1, 'lease_id', '', 'goal', g.id, 'created_at', NOWS, 'updated_at', NOWS,
    'traceparent', trace_of(g) }
  for f = first, last, 2 do
    set[#set + 1] = list[f]; set[#set + 1] = list[f + 1]
    if list[f] == 'mandatory' and list[f + 1] == '1' then
      g.open_mandatory = g.open_mandatory + 1
      add(g.id, 'open_mandatory', 1)
    end
  end
  rcall('HSET', hk(id), unpack(set))
  rcall('ZADD', gk(g.id) .. ':t', order, id)
  add(g.id, 'n:blocked', 1)
  add(g.id, 'tickets', 1)
end
-- Called after a move to a terminal state: dependents of a done one at once, up to a page.
local function ended(t)
  if OVER[goal_of(t.goal).state] then return end
  if t.status == 'done' then
    if settled >= SETTLED_MAX then
      fan_push('end', t, 0)
    elseif settle_page(t.id, 'done', 0) then
      fan_push('end', t, PAGE)
    end
  else
    fan_push('end', t, 0)
  end
end
-- Needs of a blocked ticket that will never be met: its policy decides.
local function settle_dead(id)
  for _, need in ipairs(rcall('SMEMBERS', hk(id) .. ':d')) do
    local status = rcall('HGET', hk(need), 'status')
    if status and TERMINAL[status] and status ~= 'done' then settle_need(id, need, status) end
  end
end
-- A need is open again: its dependents, and theirs, become blocked (pages through fan).
local function reopen_need(dep_id, need, need_done)
  local dep = load(dep_id)
  if not dep or (TERMINAL[dep.status] and dep.status ~= 'done') then return end
  if not need_done then rcall('SADD', hk(dep_id) .. ':d', need) end
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
  rcall('RPUSH', gk(goal) .. list, text)
  rcall('LTRIM', gk(goal) .. list, -LIST_MAX, -1)
end
local function add_note(goal, text) if text ~= '' then keep_last(goal, ':notes', text) end end
local function add_fact(goal, text)
  if text ~= '' and not rcall('LPOS', gk(goal) .. ':facts', text) then keep_last(goal, ':facts', text) end
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
    rcall('HSET', gk(g.id), 'root', roots.new)
    g.root = roots.new
  end
  add_conclusions(g.id, report)
  if g.dry ~= '' and g.dry ~= '0' then rcall('HSET', gk(g.id), 'dry', 0); g.dry = '0' end
  move(t, 'done', o)
  ended(t)
  -- The plan no longer fits, says the work: its manager hears of it once it counts.
  if string.find(report, '"plan_change":"', 1, true) then
    local ok, r = pcall(cjson.decode, report)
    if ok and type(r.plan_change) == 'string' then inbox(g, 'report', t, string.sub(r.plan_change, 1, 4096)) end
  end
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
-- An attempt ended badly; after so many with nothing accepted between, the manager looks at the whole plan.
local function dry_again(g)
  local n = (tonumber(g.dry) or 0) + 1
  if n >= cap_of(g, 'goal_dry') then
    inbox(g, 'stall', nil, n .. ' attempts in a row were rejected or failed')
    n = 0
  end
  g.dry = tostring(n)
  rcall('HSET', gk(g.id), 'dry', n)
end
-- One more of `counter`; the cap reached escalates, otherwise the ticket goes to `to`.
local function count(t, counter, to, o)
  if counter == 'faults' then dry_again(goal_of(t.goal)) end
  local n = (tonumber(rcall('HGET', hk(t.id), counter)) or 0) + 1
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
  rcall('ZREM', P .. 'lease', 'g:' .. g.id)
  rcall('ZREM', P .. 'ask', 'g:' .. g.id)
  rcall('ZREM', P .. 'dl', g.id)
  rcall('ZREM', P .. 'live', g.id)
  rcall('ZREM', P .. 'tbp', g.id)
  rcall('DEL', gk(g.id) .. ':in')
  rcall('SREM', P .. 'sealing', g.id)
  rcall('ZADD', P .. 'done', NOW, g.id)
  rcall('SADD', P .. 'ending', g.id)
  rcall('HSET', gk(g.id), 'state', state, 'lease_id', '', 'epoch', g.epoch + 1, 'updated_at', NOW, 'cause', cause or '',
    'cause_detail', string.sub(detail or '', 1, 4096), 'due_at', '', 'mq', '', 'end_cursor', 0)
  event(g.id, 'goal_' .. state, nil, g.state, state, who, detail ~= '' and detail or cause)
  g.state = state
  g.lease_id = ''
end
local function goal_to_person(g, who, cause, detail, expiry)
  rcall('ZADD', P .. 'ask', NOW + expiry, 'g:' .. g.id)
  rcall('HSET', gk(g.id), 'state', 'needs_human', 'updated_at', NOW, 'cause', cause,
    'cause_detail', string.sub(detail or '', 1, 4096), 'due_at', NOW + expiry)
  event(g.id, 'goal_needs_human', nil, g.state, 'needs_human', who, cause .. ': ' .. (detail or ''))
  g.state = 'needs_human'
end
-- It goes on: somebody answered, or what it waited for is there. `heard`: words that may change the plan.
local function goal_answered(g, who, note, word, heard)
  rcall('ZREM', P .. 'ask', 'g:' .. g.id)
  rcall('ZREM', P .. 'tbp', g.id)
  local sealed, cause = g.sealed == '1', rcall('HGET', gk(g.id), 'cause')
  rcall('HSET', gk(g.id), 'state', sealed and 'running' or 'planning', 'stalls', 0, 'losses', 0, 'cause', '', 'cause_detail', '',
    'due_at', '', 'broke', '', 'updated_at', NOW)
  g.state = sealed and 'running' or 'planning'
  g.broke = ''
  event(g.id, word or 'goal_answered', nil, 'needs_human', g.state, who, note)
  -- Money is no word about the plan: nobody is asked to look at it again.
  local money = cause == 'budget' or cause == 'tenant_budget'
  inbox(g, not sealed and 'plan' or money and 'idle' or 'answered', nil, money and note or heard or '')
  rings_open(g)
end
-- Whether a manager's call carries the goal's lease: nil when it does, else the answer.
local function not_manager(g, epoch, lease)
  if not g or OVER[g.state] then return 'GONE' end
  if g.lease_id ~= '' and g.lease_id == lease and g.epoch == tonumber(epoch) then return nil end
  return 'FENCED'
end
