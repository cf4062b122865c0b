-- The ledger: what is reserved and spent, on goals, tickets and tenants. It stands behind consequences.lua, in front of every
-- script.
-- Tenants -------------------------------------------------------------------------------------------------
-- What a tenant may, as the managers published it: a field of the hash `tenants`, `*` for those without one of their own.
local LIMITS = { 'requests', 'input', 'output', 'in_flight', 'tokens', 'microusd' }
local function limits_of(tenant)
  local v = rcall('HMGET', P .. 'tenants', tenant, '*')
  local text = v[1] or v[2]
  if not text then return nil end
  local words = {}
  for word in string.gmatch(text, '[^|]+') do words[#words + 1] = word end
  local limits = { period = words[7] or 'month' }
  for i, name in ipairs(LIMITS) do limits[name] = tonumber(words[i]) or 0 end
  return limits
end
-- First day of the month that a day is in; days are counted from 1970.
local DAY_MS = 86400000
local function month_begin(day)
  local z = day + 719468
  local doe = z % 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  return day - (doy - math.floor((153 * math.floor((5 * doy + 2) / 153) + 2) / 5))
end
local function period_end(word)
  local day = math.floor(NOW / DAY_MS)
  if word == 'day' then return (day + 1) * DAY_MS end
  return month_begin(month_begin(day) + 31) * DAY_MS
end
-- What a tenant has spent in its period (UTC), which turns by itself: tb:<tenant>. What is reserved is carried over.
local function book_of(tenant)
  local key, limits = P .. 'tb:' .. tenant, limits_of(tenant)
  local period = limits and limits.period or 'month'
  local v = rcall('HMGET', key, 'period', 'until', 'spent_tokens', 'spent_microusd', 'reserved_tokens', 'reserved_microusd',
    'raised_tokens', 'raised_microusd')
  local b = { book = key, period = period, till = tonumber(v[2]) or 0, tokens = limits and limits.tokens or 0,
    microusd = limits and limits.microusd or 0 }
  if v[1] ~= period or NOW >= b.till then
    b.till = period_end(period)
    v[3], v[4], v[7], v[8] = nil, nil, nil, nil
    rcall('HSET', key, 'period', period, 'until', string.format('%.0f', b.till), 'spent_tokens', 0, 'spent_microusd', 0)
    rcall('HDEL', key, 'raised_tokens', 'raised_microusd')
    rcall('SADD', P .. 'tbs', tenant)
  end
  b.spent_tokens, b.spent_microusd = tonumber(v[3]) or 0, tonumber(v[4]) or 0
  b.reserved_tokens, b.reserved_microusd = math.max(tonumber(v[5]) or 0, 0), math.max(tonumber(v[6]) or 0, 0)
  -- Raised by hand: for the rest of this period.
  b.tokens, b.microusd = tonumber(v[7]) or b.tokens, tonumber(v[8]) or b.microusd
  return b
end

-- Reservations ---------------------------------------------------------------------------------------------
-- A reservation is one field of g:<goal>:res (tokens|millionths of a dollar|ticket) and one member of the zset res;
-- reserved_tokens and reserved_microusd of the goal, and of its tenant's book, are their sums.   answers the three parts, or nil when it is not there any more
local function unreserve(goal, call)
  local kept = rcall('HGET', gk(goal) .. ':res', call)
  rcall('ZREM', P .. 'res', goal .. '|' .. call)
  if not kept then return nil end
  rcall('HDEL', gk(goal) .. ':res', call)
  local tokens, money, ticket = string.match(kept, '^(%d+)|(%d+)|(%x*)$')
  -- Through %d: the negative of 0 is -0, which is no integer for Redis.
  local function less(key, field, n) rcall('HINCRBY', key, field, string.format('%d', -tonumber(n))) end
  less(gk(goal), 'reserved_tokens', tokens)
  less(gk(goal), 'reserved_microusd', money)
  local book = P .. 'tb:' .. (rcall('HGET', gk(goal), 'tenant') or '')
  less(book, 'reserved_tokens', tokens)
  less(book, 'reserved_microusd', money)
  return tokens, money, ticket
end
-- What was spent stands on the goal and its tenant, and on the ticket while it is there.
local function spend(goal, id, tokens, money)
  rcall('HINCRBY', gk(goal), 'spent_tokens', tokens)
  rcall('HINCRBY', gk(goal), 'spent_microusd', money)
  local book = book_of(rcall('HGET', gk(goal), 'tenant') or '').book
  rcall('HINCRBY', book, 'spent_tokens', tokens)
  rcall('HINCRBY', book, 'spent_microusd', money)
  local t = id ~= '' and load(id) or nil
  if t then
    rcall('HINCRBY', hk(id), 'spent_tokens', tokens)
    rcall('HINCRBY', hk(id), 'spent_microusd', money)
  end
  return t
end
