#!lua flags=allow-oom
-- reviewers: how good a reviewer (model and prompt together) is, measured by deliverables whose verdict is known.
--   reviewed: actor                                  one more judged review
--   due:      actor, percent, model, tier            {number of the next known deliverable, or 0}; says too that it is there
--   measured: actor, canary | control, right (1 or 0), window, least of a kind, floor percent, tokens,
--             millionths of a dollar, record (JSON)  {SUSPENDED or OK}
--   unread:   actor, tokens, millionths of a dollar, record (JSON)      no verdict came of it: nothing is measured
--   order:    actor, n                               {1} when it is known
--   lift:     actor, who                             {1} when it was suspended; its rates begin anew
-- A canary has a planted defect and is right when that was found; a control is good and is right when it was passed.
local what, actor = ARGV[1], ARGV[2]
local book, log = P .. 'rv:' .. actor, P .. 'rv:' .. actor .. ':log'
local REVIEWERS_MAX, LOG_MAX, ORDERS_MAX = 1000, 99, 1000
local function number(field) return tonumber(redis.call('HGET', book, field)) or 0 end
local function keep(tokens, microusd, record)
  redis.call('HINCRBY', book, 'tokens', tokens)
  redis.call('HINCRBY', book, 'microusd', microusd)
  redis.call('LPUSH', log, record)
  redis.call('LTRIM', log, 0, LOG_MAX)
end
local function known() return redis.call('SISMEMBER', P .. 'reviewers', actor) == 1 end

if what == 'due' then
  if not known() then
    -- Names of models come from outside: no growth without end.
    if redis.call('SCARD', P .. 'reviewers') >= REVIEWERS_MAX then return { 0 } end
    redis.call('SADD', P .. 'reviewers', actor)
  end
  redis.call('HSET', book, 'model', ARGV[4], 'tier', ARGV[5], 'seen_at', NOWS)
  local ordered = number('ordered')
  if ordered > 0 then
    redis.call('HINCRBY', book, 'ordered', -1)
  elseif redis.call('SISMEMBER', P .. 'suspended', actor) == 1
    or math.floor(number('reviews') * tonumber(ARGV[3]) / 100) <= number('drawn_at_rate') then
    return { 0 }
  else
    redis.call('HINCRBY', book, 'drawn_at_rate', 1)
  end
  return { redis.call('HINCRBY', book, 'drawn', 1) }
end
if not known() then return { 0 } end
if what == 'reviewed' then
  redis.call('HINCRBY', book, 'reviews', 1)
elseif what == 'order' then
  redis.call('HSET', book, 'ordered', math.min(number('ordered') + tonumber(ARGV[3]), ORDERS_MAX))
elseif what == 'lift' then
  if redis.call('SREM', P .. 'suspended', actor) == 0 then return { 0 } end
  redis.call('HSET', book, 'suspended_at', '', 'why', '', 'lifted_by', ARGV[3], 'canary_last', '', 'control_last', '')
  token('review')
elseif what == 'unread' then
  redis.call('HINCRBY', book, 'unread', 1)
  keep(ARGV[3], ARGV[4], ARGV[5])
else
  local kind, right, window, least, floor = ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
  keep(ARGV[8], ARGV[9], ARGV[10])
  local last = string.sub((redis.call('HGET', book, kind .. '_last') or '') .. right, -window)
  redis.call('HSET', book, kind .. '_last', last)
  local counted = kind == 'canary' and 'canaries' or 'controls'
  redis.call('HINCRBY', book, counted, 1)
  if right == '1' then redis.call('HINCRBY', book, counted .. '_right', 1) end
  local _, rights = string.gsub(last, '1', '')
  if #last >= least and rights * 100 < floor * #last and redis.call('SADD', P .. 'suspended', actor) == 1 then
    local of = kind == 'canary' and ' planted defects were found' or ' good deliverables were passed'
    redis.call('HSET', book, 'suspended_at', NOWS, 'why', rights .. ' of the last ' .. #last .. of .. ', the floor is ' .. floor .. ' %')
    return { 'SUSPENDED' }
  end
  return { 'OK' }
end
return { 1 }
