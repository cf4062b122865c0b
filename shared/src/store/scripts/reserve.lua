#!lua flags=allow-oom
-- reserve: call id, goal, ticket or empty, tokens, millionths of a dollar (both at worst), expiry ms, person expiry ms
-- answers {OK} {LATER left} {REFUSED left, whose: goal or tenant, what} {GONE}
-- Settled and reserved together never pass a budget, the goal's or its tenant's (I7).
local call, goal, id, tokens, money, expiry = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local g = goal_of(goal)
if not g or OVER[g.state] then return { 'GONE' } end
if redis.call('HEXISTS', gk(goal) .. ':res', call) == 1 then return { 'OK' } end
local function whole(n) return string.format('%d', math.max(n, 0)) end
-- nil: it fits; else the answer. `park` says what a person is told.
local function refused(budget, spent, reserved, asked, whose, what, park)
  if budget <= 0 or spent + reserved + asked <= budget then return nil end
  local left = whole(budget - spent - reserved)
  -- Others' calls mostly cost less than they reserved: what they give back may be enough.
  if reserved > 0 and spent + asked <= budget then return { 'LATER', left } end
  if g.broke ~= '1' then
    redis.call('HSET', gk(goal), 'broke', '1')
    g.broke = '1'
    rings_close(g)
    park('the next model call may take ' .. whole(asked) .. ' ' .. what .. ' and ' .. whole(budget - spent) .. ' of the budget of '
      .. whole(budget))
  end
  return { 'REFUSED', left, whose, what }
end
local asked, name = { tokens = tokens, microusd = money }, { tokens = 'tokens', microusd = 'millionths of a dollar' }
local no = nil
for _, what in ipairs({ 'tokens', 'microusd' }) do
  local v = redis.call('HMGET', gk(goal), 'budget_' .. what, 'spent_' .. what, 'reserved_' .. what)
  -- Below zero: reserved by the version before, which kept no money of goals.
  local reserved = math.max(tonumber(v[3]) or 0, 0)
  no = no or refused(tonumber(v[1]) or 0, tonumber(v[2]) or 0, reserved, asked[what], 'goal', name[what], function(words)
    goal_to_person(g, 'fleet', 'budget', words .. ' are left; answer with a higher budget_' .. what, tonumber(ARGV[7]))
  end)
end
if no then return no end
local b = book_of(g.tenant)
for _, what in ipairs({ 'tokens', 'microusd' }) do
  no = no or refused(b[what], b['spent_' .. what], b['reserved_' .. what], asked[what], 'tenant', name[what], function(words)
    -- It goes on when the period turns; a person has all the usual time after that.
    redis.call('ZADD', P .. 'tbp', b.till, goal)
    goal_to_person(g, 'fleet', 'tenant_budget', words .. ' of the tenant ' .. g.tenant .. ' for this ' .. b.period
      .. ' are left; `muster fleet budget` raises it, and it goes on by itself when the next ' .. b.period .. ' begins (UTC)',
      math.max(b.till - NOW, 0) + tonumber(ARGV[7]))
  end)
end
if no then return no end
redis.call('HSET', gk(goal) .. ':res', call, ARGV[4] .. '|' .. ARGV[5] .. '|' .. id)
redis.call('HINCRBY', gk(goal), 'reserved_tokens', tokens)
redis.call('HINCRBY', gk(goal), 'reserved_microusd', money)
redis.call('HINCRBY', b.book, 'reserved_tokens', tokens)
redis.call('HINCRBY', b.book, 'reserved_microusd', money)
redis.call('ZADD', P .. 'res', NOW + expiry, goal .. '|' .. call)
return { 'OK' }
