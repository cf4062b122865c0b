#!lua flags=allow-oom
-- reserve: call id, goal, ticket or empty, tokens, millionths of a dollar (both at worst), expiry ms, person expiry ms
-- answers {OK} {LATER left} {REFUSED left} {GONE}   Settled and reserved together never pass the budget (I7).
local call, goal, id, tokens, expiry = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[6])
local g = goal_of(goal)
if not g or OVER[g.state] then return { 'GONE' } end
if redis.call('HEXISTS', gk(goal) .. ':res', call) == 1 then return { 'OK' } end
local v = redis.call('HMGET', gk(goal), 'budget_tokens', 'spent_tokens', 'reserved_tokens')
local budget, spent, reserved = tonumber(v[1]) or 0, tonumber(v[2]) or 0, tonumber(v[3]) or 0
if budget > 0 and spent + reserved + tokens > budget then
  local left = string.format('%d', math.max(budget - spent - reserved, 0))
  -- Others' calls mostly cost less than they reserved: what they give back may be enough.
  if reserved > 0 and spent + tokens <= budget then return { 'LATER', left } end
  if g.broke ~= '1' then
    redis.call('HSET', gk(goal), 'broke', '1')
    g.broke = '1'
    rings_close(g)
    goal_to_person(g, 'fleet', 'budget', 'the next model call may take ' .. ARGV[4] .. ' tokens and '
      .. string.format('%d', math.max(budget - spent, 0)) .. ' of the budget of ' .. string.format('%d', budget)
      .. ' are left; answer with a higher budget_tokens', tonumber(ARGV[7]))
  end
  return { 'REFUSED', left }
end
redis.call('HSET', gk(goal) .. ':res', call, ARGV[4] .. '|' .. ARGV[5] .. '|' .. id)
redis.call('HINCRBY', gk(goal), 'reserved_tokens', tokens)
redis.call('ZADD', P .. 'res', NOW + expiry, goal .. '|' .. call)
return { 'OK' }
