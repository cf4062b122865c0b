#!lua flags=allow-oom
-- quota: the fleet's governor of one endpoint and model, and of tenants: who calls next, how fast, and whether at all.
--   enter: endpoint, call, expiry ms, lane (0 goes before 1 goes before 2), in flight max (0: no cap), failures max
--          (0: no breaker), requests a minute (0: learnt), name, goal or empty, input and output tokens that the call may take,
--          input and output tokens a minute (0: no limit)      {OK, entry} or {WAIT, ms, why}
--   keep:  endpoint, call, expiry ms, goal or empty
--   leave: endpoint, call, its entry or empty, ok | quota | network | overload | none, hint ms or empty, failures max, open ms,
--          requests a minute, goal or empty, input and output tokens that it may have taken, and that it took
--          {1} while the breaker is open
--   lift:  endpoint      no cool-down, no open breaker any more; {1} when it is known
--   look:  endpoint      {field, value, …}
-- Pace: until the first 429 calls are let out on a steep ramp, so that a limit is found with few refusals. At a 429 the
-- server's own bucket is empty: what it took since the last 429 is its rate. Ours is emptied with it and filled a little
-- slower; each answer raises the rate by a little, faster the longer none was refused.
-- Tokens: two buckets that fill evenly. A call takes out what such calls took of their worst case so far, and puts the
-- difference to what it really took back at its end.
-- Tenants: whom its own limits hold back stands in a line of its own and in nobody's way; in the endpoint's line tenants
-- take turns.
local what, call = ARGV[1], ARGV[3]
local key = P .. 'gov:' .. ARGV[2]
local flight, line, seen, turns, held = key .. ':in', key .. ':wait', key .. ':seen', key .. ':turn', key .. ':held'
local left = P .. 'gov:' .. ARGV[2] .. ':left:' .. (call or '')
local IDLE_S = 86400
local LEFT_S = 60 -- longer than a lost answer is asked for again
local WAITER_MS = 3000 -- who has not asked for this long waits no more
local POLL_MS = 1000 -- longest pause between two questions of a waiter
local LANE = 1e13 -- above any time in ms: lanes first, then by arrival
local RAMP_FIRST, RAMP_RATE, RAMP_DOUBLES_MS, RAMP_MS = 10, 50, 100, 1000
local MARGIN, GROWTH, HASTE = 0.98, 0.00015, 30
local FEW, STEP = 5, 0.7 -- so few answers between two refusals are no measure: at most this step down
local FIRST = 0.85 -- of what went out just before the first refusal some was refused as well
local RATE_MIN, RATE_MAX = 0.01, 10000
local TOKENS_S = 10 -- of a minute's tokens so many seconds' may go at once
local KINDS = { 'i', 'o' } -- tokens that go in, that come out
local SHARE = { i = 1, o = 0.25 } -- of its worst case a call is reckoned with, until it is known better
local SHARE_STEP = 0.1
local F = { 'until', 'failures', 'open_until', 'probe', 'probe_until', 'hits', 'rate', 'level', 'at', 'ramp_at', 'empty_at',
  'sent', 'full', 'answers', 'second', 'now', 'before', 'burst_s', 'name', 'cooled', 'heard_at', 'i_level', 'i_at', 'i_share',
  'o_level', 'o_at', 'o_share' }
local v = {}
for i, value in ipairs(redis.call('HMGET', key, unpack(F))) do v[F[i]] = value or '' end
local function num(f) return tonumber(v[f]) or 0 end
local function text(n) return string.format('%.6f', n) end

if what == 'lift' then
  if v.name == '' then return { 0 } end
  redis.call('HSET', key, 'until', 0, 'cooled', 0, 'hits', 0, 'failures', 0, 'open_until', 0, 'probe', '')
  return { 1 }
end

-- The tenant of the call, when it has limits: its meters in tq:<tenant>, its line at this endpoint.
local function tenant_of(goal)
  if not goal or goal == '' or rcall('EXISTS', P .. 'tenants') == 0 then return nil end
  local tenant = rcall('HGET', gk(goal), 'tenant') or ''
  local limits = limits_of(tenant)
  if not limits or limits.requests + limits.input + limits.output + limits.in_flight == 0 then return nil end
  local meters = P .. 'tq:' .. tenant
  return { meters = meters, limits = limits, flight = meters .. ':in', line = key .. ':t:' .. tenant .. ':wait', seen = key .. ':t:' .. tenant .. ':seen' }
end

if what == 'keep' then
  redis.call('ZADD', flight, 'XX', NOW + tonumber(ARGV[4]), call)
  if v.probe == call then redis.call('HSET', key, 'probe_until', NOW + tonumber(ARGV[4])) end
  local own = tenant_of(ARGV[5])
  if own then redis.call('ZADD', own.flight, 'XX', NOW + tonumber(ARGV[4]), call) end
  return { 'OK' }
end
-- Whoever died in its call is no member any more, and who died waiting stands in nobody's way.
local function clear(a_flight, a_line, a_seen)
  redis.call('ZREMRANGEBYSCORE', a_flight, '-inf', NOW)
  for _, gone in ipairs(redis.call('ZRANGEBYSCORE', a_seen, '-inf', NOW - WAITER_MS, 'LIMIT', 0, PAGE)) do
    redis.call('ZREM', a_line, gone)
    redis.call('ZREM', a_seen, gone)
  end
end
clear(flight, line, seen)
redis.call('ZREMRANGEBYSCORE', held, '-inf', NOW - WAITER_MS)
local function waits(n) return redis.call('ZCOUNT', line, n * LANE, (n + 1) * LANE - 1) end
if what == 'look' then
  return { 'name', v.name, 'in_flight', redis.call('ZCARD', flight), 'managers_waiting', waits(0), 'reviewers_waiting', waits(1),
    'workers_waiting', waits(2), 'rate', v.rate, 'cool_down_ms', math.max(num('until') - NOW, 0), 'failures', num('failures'),
    'closed_for_ms', math.max(num('open_until') - NOW, 0), 'held', redis.call('ZCARD', held) }
end

local function leave_line(a_line, a_seen)
  redis.call('ZREM', a_line, call)
  redis.call('ZREM', a_seen, call)
end
-- The call's place among those that wait; it keeps the one that it has.
local function join_line(a_line, a_seen, place)
  redis.call('ZADD', a_line, 'NX', place, call)
  redis.call('ZADD', a_seen, NOW, call)
  redis.call('EXPIRE', a_line, IDLE_S)
  redis.call('EXPIRE', a_seen, IDLE_S)
  return redis.call('ZRANK', a_line, call)
end
-- A bucket that fills at `rate` a second up to `size`: what is in it.
local function filled(level, at, rate, size)
  if not level or level == '' then return size end
  return math.min(size, tonumber(level) + math.max(NOW - (tonumber(at) or NOW), 0) * rate / 1000)
end
-- Tokens that the call is reckoned with.
local function reckoned(kind, asked) return math.ceil(asked * (tonumber(v[kind .. '_share']) or SHARE[kind])) end
-- ms until the buckets of a minute's tokens hold enough for the call and those before it; 0: they do now. `fields`: where they stand.
local function tokens_wait(fields, needs, limits, rank)
  local ms = 0
  for _, kind in ipairs(KINDS) do
    local rate, need = limits[kind] / 60, needs[kind]
    if rate > 0 and need > 0 then
      local size = math.max(rate * TOKENS_S, 1)
      local level = filled(fields[kind .. '_level'], fields[kind .. '_at'], rate, size)
      -- The first of the line may be larger than the bucket: it goes when that is full, and those behind it wait the longer.
      local enough = rank == 0 and math.min(need, size) or need * (rank + 1)
      if level < enough then ms = math.max(ms, (enough - level) * 1000 / rate) end
    end
  end
  return ms
end
local function tokens_take(at_key, fields, needs, limits)
  for _, kind in ipairs(KINDS) do
    local rate = limits[kind] / 60
    if rate > 0 then
      local level = filled(fields[kind .. '_level'], fields[kind .. '_at'], rate, math.max(rate * TOKENS_S, 1))
      redis.call('HSET', at_key, kind .. '_level', text(level - needs[kind]), kind .. '_at', NOW)
    end
  end
end

if what == 'enter' then
  local expiry, lane, cap, failures_max, fixed = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
  local goal, asked = ARGV[10] or '', { i = tonumber(ARGV[11]) or 0, o = tonumber(ARGV[12]) or 0 }
  local limits = { i = tonumber(ARGV[13]) or 0, o = tonumber(ARGV[14]) or 0 }
  local needs = { i = reckoned('i', asked.i), o = reckoned('o', asked.o) }
  if redis.call('ZSCORE', flight, call) then return { 'OK', '' } end
  if v.name == '' then
    redis.call('HSET', key, 'name', ARGV[9])
    redis.call('SADD', P .. 'govs', ARGV[2])
  end
  local function wait(ms, why)
    return { 'WAIT', string.format('%d', math.max(math.ceil(ms), 5)), why }
  end
  -- The tenant's own limits first.
  local own, mine, mine_limits, mine_rate = tenant_of(goal), {}, nil, 0
  if own then
    clear(own.flight, own.line, own.seen)
    for i, value in ipairs(redis.call('HMGET', own.meters, 'level', 'at', 'i_level', 'i_at', 'o_level', 'o_at')) do
      mine[({ 'level', 'at', 'i_level', 'i_at', 'o_level', 'o_at' })[i]] = value
    end
    mine_limits, mine_rate = { i = own.limits.input, o = own.limits.output }, own.limits.requests / 60
    local rank = join_line(own.line, own.seen, lane * LANE + NOW)
    local ms = tokens_wait(mine, needs, mine_limits, rank)
    local room = own.limits.in_flight > 0 and own.limits.in_flight - redis.call('ZCARD', own.flight) or math.huge
    if rank >= room then ms = math.max(ms, 100 * (1 + rank / own.limits.in_flight)) end
    if mine_rate > 0 then
      local level = filled(mine.level, mine.at, mine_rate, math.max(1, mine_rate))
      if rank + 1 > level then ms = math.max(ms, (rank + 1 - level) * 1000 / mine_rate) end
    end
    if ms > 0 then
      leave_line(line, seen)
      redis.call('ZADD', held, NOW, call)
      redis.call('EXPIRE', held, IDLE_S)
      return wait(math.min(ms, POLL_MS), 'tenant')
    end
    redis.call('ZREM', held, call)
  end
  -- Tenants take turns: a tenant's next place is one behind its last, but not before the turn that is on now.
  local tenant, place = goal ~= '' and redis.call('HGET', gk(goal), 'tenant') or '', 0
  local turn_f, last_f = 'now:' .. lane, lane .. ':' .. tenant
  if not redis.call('ZSCORE', line, call) then
    local t = redis.call('HMGET', turns, turn_f, last_f)
    local now = tonumber(t[1]) or 0
    place = math.max(now, math.min(tonumber(t[2]) or 0, now + redis.call('ZCARD', line))) + 1
    redis.call('HSET', turns, last_f, place)
    redis.call('EXPIRE', turns, IDLE_S)
  end
  local rank = join_line(line, seen, lane * LANE + place)
  local rate = fixed > 0 and fixed / 60 or num('rate')
  if num('until') > NOW then return wait(num('until') - NOW, 'cool-down') end
  local open = failures_max > 0 and num('failures') >= failures_max
  if open and num('open_until') > NOW then return wait(num('open_until') - NOW, 'breaker') end
  -- Half open: one call at a time finds out whether it is back.
  if open and v.probe ~= '' and num('probe_until') > NOW then return wait(math.min(num('probe_until') - NOW, 500), 'breaker') end
  if open and rank > 0 then return wait(100, 'breaker') end
  local room = cap > 0 and cap - redis.call('ZCARD', flight) or math.huge
  if rank >= room then return wait(math.min(100 * (1 + rank / cap), POLL_MS), 'in flight') end
  local tokens_ms = tokens_wait(v, needs, limits, rank)
  if tokens_ms > 0 then return wait(math.min(tokens_ms, POLL_MS), 'tokens') end
  -- How many may go now, and how full our bucket is.
  local level, size, ramp_at, full = 0, 0, num('ramp_at'), v.full
  if rate > 0 then
    size = math.max(1, rate * (tonumber(v.burst_s) or 1))
    level = v.level == '' and size or num('level') + math.max(NOW - math.max(num('at'), num('cooled')), 0) * rate / 1000
    if level >= size then level = size; full = '1' end
    if rank + 1 > level then return wait(math.min((rank + 1 - level) * 1000 / rate, POLL_MS), 'pace') end
  else
    if ramp_at == 0 then ramp_at = NOW end
    -- FIRST at once, then RATE a second, doubled every DOUBLES_MS: when this one's turn is.
    local beyond = rank + 1 + num('sent') - RAMP_FIRST
    if beyond > 0 and NOW - ramp_at < RAMP_MS then
      local turn = RAMP_DOUBLES_MS * math.log(beyond * 693 / (RAMP_RATE * RAMP_DOUBLES_MS) + 1) / math.log(2)
      if NOW - ramp_at < turn then return wait(math.min(turn - (NOW - ramp_at), RAMP_MS), 'ramp') end
    end
  end
  redis.call('HSET', turns, turn_f, math.max(tonumber(redis.call('HGET', turns, turn_f)) or 0, redis.call('ZSCORE', line, call) - lane * LANE))
  leave_line(line, seen)
  tokens_take(key, v, needs, limits)
  if own then
    leave_line(own.line, own.seen)
    tokens_take(own.meters, mine, needs, mine_limits)
    if mine_rate > 0 then
      redis.call('HSET', own.meters, 'level', text(filled(mine.level, mine.at, mine_rate, math.max(1, mine_rate)) - 1), 'at', NOW)
    end
    redis.call('ZADD', own.flight, NOW + expiry, call)
    redis.call('EXPIRE', own.flight, IDLE_S)
    redis.call('EXPIRE', own.meters, IDLE_S)
  end
  if open then redis.call('HSET', key, 'probe', call, 'probe_until', NOW + expiry) end
  redis.call('ZADD', flight, NOW + expiry, call)
  redis.call('DEL', left)
  redis.call('EXPIRE', flight, IDLE_S)
  local second = math.floor(NOW / 1000)
  local here, before = num('now'), num('before')
  if num('second') ~= second then
    before = num('second') == second - 1 and here or 0
    here = 0
  end
  redis.call('HSET', key, 'level', text(level - 1), 'at', NOW, 'ramp_at', ramp_at, 'sent', num('sent') + 1, 'full', full,
    'second', second, 'now', here + 1, 'before', before)
  redis.call('EXPIRE', key, IDLE_S)
  -- When it went, as which one since the last refusal, and how many within the last seconds: refusals come back out of
  -- order and late, and must be reckoned with what was true when their call went. And the tokens that it took out.
  return { 'OK', string.format('%d:%d:%d:%d:%d', NOW, num('sent') + 1, here + 1 + before, needs.i, needs.o) }
end

-- leave
local entered, nth, recent, took_i, took_o = string.match(ARGV[4], '^(%d+):(%d+):(%d+):?(%d*):?(%d*)$')
entered, nth, recent = tonumber(entered) or NOW, tonumber(nth) or num('sent'), tonumber(recent) or num('now') + num('before')
local word, hint = ARGV[5], tonumber(ARGV[6])
local failures_max, open_ms, fixed = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
leave_line(line, seen)
redis.call('ZREM', held, call)
local own = tenant_of(ARGV[10])
if own then
  leave_line(own.line, own.seen)
  redis.call('ZREM', own.flight, call)
end
-- A repeat after a lost answer counts nothing twice; a member that expired is heard all the same.
redis.call('ZREM', flight, call)
local failures = num('failures')
if not redis.call('SET', left, '1', 'NX', 'EX', LEFT_S) then
  return { failures_max > 0 and failures >= failures_max and 1 or 0 }
end
-- Tokens: what was taken out beside what was used. Only a call that was let in took any.
local taken, worst, used = { i = tonumber(took_i), o = tonumber(took_o) }, { i = tonumber(ARGV[11]), o = tonumber(ARGV[12]) },
  { i = tonumber(ARGV[13]), o = tonumber(ARGV[14]) }
for _, kind in ipairs(KINDS) do
  if taken[kind] and used[kind] then
    local back = taken[kind] - math.min(used[kind], 1e9)
    local function give_back(a_meter) redis.call('HINCRBYFLOAT', a_meter, kind .. '_level', back) end
    if v[kind .. '_level'] ~= '' then give_back(key) end
    if own and own.limits[kind == 'i' and 'input' or 'output'] > 0 then give_back(own.meters) end
    if word == 'ok' and used[kind] > 0 and (worst[kind] or 0) > 0 then
      local share = tonumber(v[kind .. '_share']) or SHARE[kind]
      share = share + SHARE_STEP * (used[kind] / worst[kind] - share)
      redis.call('HSET', key, kind .. '_share', text(math.min(math.max(share, 0.01), 2)))
    end
  end
end
if word == 'ok' then
  if failures > 0 or num('hits') > 0 then redis.call('HSET', key, 'failures', 0, 'hits', 0, 'probe', '') end
  failures = 0
  if num('rate') > 0 and fixed == 0 then
    local n = num('answers') + 1
    redis.call('HSET', key, 'answers', n, 'rate', text(math.min(num('rate') * (1 + GROWTH * (1 + 2 * n / HASTE)), RATE_MAX)))
  end
elseif word == 'quota' then
  failures = 0
  local hits, rate = num('hits'), num('rate')
  -- Refused side by side is one refusal: the calls were sent before the fleet heard of the first.
  if entered >= num('heard_at') then
    hits = hits + 1
    local took = math.max(nth - 1, 0)
    local set = { 'hits', hits, 'failures', 0, 'probe', '', 'empty_at', entered, 'heard_at', NOW, 'sent', 0, 'full', '', 'answers', 0, 'level', '0', 'at', NOW, 'cooled', 0 }
    local function put(f, value) set[#set + 1] = f; set[#set + 1] = value end
    if fixed > 0 then
      rate = fixed / 60
    elseif rate == 0 then
      -- Nothing is known but what came through just now.
      local out = math.floor(NOW / 1000) - num('second') <= 1 and num('now') + num('before') - 1 or 0
      rate = math.max(recent - 1, out * FIRST, 1)
      put('burst_s', '1')
    elseif took > 0 then
      local dt = math.max((entered - num('empty_at')) / 1000, 0.001)
      -- While we were silent a small bucket ran over: the truth lies between both.
      local silent = math.max(math.min(num('until'), entered) - num('empty_at'), 0) / 1000
      local low, high = took / dt, took / math.max(dt - silent, 0.001)
      if v.full == '1' then high = math.max(high, rate) end
      local new = math.min(math.max(rate * 0.95, low), high) * MARGIN
      if took < FEW then new = math.max(new, rate * STEP) end
      rate = math.max(new, RATE_MIN)
      local burst = tonumber(v.burst_s) or 1
      if took <= rate * burst + 1 then put('burst_s', text(math.max(burst / 2, 0.001))) end
    end
    put('rate', fixed > 0 and v.rate or text(rate))
    redis.call('HSET', key, unpack(set))
  end
  if not hint then
    hint = math.min(math.max(2000 / math.max(rate, RATE_MIN), 100), 1000) * 2 ^ math.min(math.max(hits - 1, 0), 8)
    hint = math.min(hint, 30000)
  end
  local till = math.max(num('until'), math.ceil(NOW + hint))
  redis.call('HSET', key, 'until', till)
  -- Refused again and again: after the pause one call goes first, not a bucketful.
  if hits > 1 then redis.call('HSET', key, 'cooled', till - math.ceil(1000 / math.max(rate, RATE_MIN))) end
elseif word == 'network' then
  failures = failures + 1
  redis.call('HSET', key, 'failures', failures, 'open_until', NOW + open_ms)
elseif word == 'overload' and failures_max > 0 and failures >= failures_max then
  redis.call('HSET', key, 'open_until', NOW + open_ms)
end
if v.probe == call then redis.call('HSET', key, 'probe', '') end
redis.call('EXPIRE', key, IDLE_S)
return { failures_max > 0 and failures >= failures_max and 1 or 0 }
