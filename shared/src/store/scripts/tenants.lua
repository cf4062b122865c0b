#!lua flags=allow-oom
-- tenants: what each tenant may, and its book.
--   publish: tenant, limits, tenant, limits…   in place of all that was published before; answers {changed: 1 or 0}
--   raise:   tenant, tokens or empty, millionths of a dollar or empty   for the rest of its period; answers {goals that waited for it}
--   look:    tenant   {field, value, …}
-- Limits are requests, input tokens and output tokens a minute, calls in flight, tokens and millionths of a dollar a period,
-- and the period, joined by |. Goals that wait for a tenant's budget go on with the next sweep; what is refused again waits again.
local what = ARGV[1]
local function release(of)
  local released = 0
  for _, goal in ipairs(redis.call('ZRANGE', P .. 'tbp', 0, 9999)) do
    if not of or redis.call('HGET', gk(goal), 'tenant') == of then
      redis.call('ZADD', P .. 'tbp', NOW, goal)
      released = released + 1
    end
  end
  return released
end

if what == 'publish' then
  local before, now, changed = {}, {}, false
  local flat = redis.call('HGETALL', P .. 'tenants')
  for i = 1, #flat, 2 do before[flat[i]] = flat[i + 1] end
  for i = 2, #ARGV, 2 do
    now[ARGV[i]] = true
    if before[ARGV[i]] ~= ARGV[i + 1] then
      changed = true
      redis.call('HSET', P .. 'tenants', ARGV[i], ARGV[i + 1])
    end
  end
  for tenant in pairs(before) do
    if not now[tenant] then
      changed = true
      redis.call('HDEL', P .. 'tenants', tenant)
    end
  end
  if changed then release(nil) end
  return { changed and 1 or 0 }
end

local tenant = ARGV[2]
local b = book_of(tenant)
if what == 'raise' then
  if ARGV[3] ~= '' then redis.call('HSET', b.book, 'raised_tokens', ARGV[3]) end
  if ARGV[4] ~= '' then redis.call('HSET', b.book, 'raised_microusd', ARGV[4]) end
  return { release(tenant) }
end
local limits = limits_of(tenant) or {}
local out = { 'tenant', tenant, 'period', b.period, 'ends_in_ms', b.till - NOW, 'spent_tokens', b.spent_tokens,
  'spent_microusd', b.spent_microusd, 'reserved_tokens', b.reserved_tokens, 'reserved_microusd', b.reserved_microusd,
  'budget_tokens', b.tokens, 'budget_microusd', b.microusd,
  'in_flight', redis.call('ZCOUNT', P .. 'tq:' .. tenant .. ':in', NOW, '+inf') }
for _, name in ipairs({ 'requests', 'input', 'output', 'in_flight' }) do
  out[#out + 1] = name .. '_max'
  out[#out + 1] = limits[name] or 0
end
for i, value in ipairs(out) do
  if type(value) == 'number' then out[i] = string.format('%.0f', value) end
end
return out
