#!lua flags=allow-oom
-- goal_keys: what, goal, numbers…
--   forget: deletes a finished goal's keys in pages, answers 1 while more are left
--   count: in flight, open mandatory as the audit counted them over a whole read, last event before it,
--   fix (1 or 0), tickets it read; answers what was wrong
local what, goal = ARGV[1], ARGV[2]
local g = goal_of(goal)
if what == 'count' then
  if not g then return '' end
  if g.in_flight == tonumber(ARGV[3]) and g.open_mandatory == tonumber(ARGV[4]) then return '' end
  local last = redis.call('XREVRANGE', gk(goal) .. ':ev', '+', '-', 'COUNT', 1)[1]
  -- It moved or grew meanwhile (a plan's pages arrive without an event): the counts are of another time.
  if (last and last[1] or '') ~= ARGV[5] or redis.call('ZCARD', gk(goal) .. ':t') ~= tonumber(ARGV[7]) then return '' end
  local wrong = 'in flight ' .. g.in_flight .. ' counted ' .. ARGV[3] .. ', open mandatory ' .. g.open_mandatory .. ' counted ' .. ARGV[4]
  if ARGV[6] == '1' then
    -- A script that broke off in its middle leaves them behind; all else is put back by the audit's pages.
    redis.call('HSET', gk(goal), 'in_flight', ARGV[3], 'open_mandatory', ARGV[4])
    g.in_flight = tonumber(ARGV[3])
    g.open_mandatory = tonumber(ARGV[4])
    rings_open(g)
    if g.open_mandatory <= 0 and g.sealed == '1' then inbox(g, 'all_closed', nil, '') end
  end
  return wrong
end
if g and not OVER[g.state] then return 0 end
local page = redis.call('ZRANGE', gk(goal) .. ':t', 0, PAGE - 1)
for _, id in ipairs(page) do
  redis.call('ZREM', P .. 'lease', id)
  redis.call('ZREM', P .. 'delay', id)
  redis.call('ZREM', P .. 'ask', id)
  redis.call('ZREM', P .. 'cancelling', id)
  local pool = redis.call('HGET', hk(id), 'pool') or ''
  redis.call('SREM', P .. 'dem:work.' .. pool, id)
  redis.call('SREM', P .. 'dem:review', id)
  redis.call('DEL', hk(id), hk(id) .. ':d', hk(id) .. ':o', hk(id) .. ':s', hk(id) .. ':e')
  redis.call('ZREM', gk(goal) .. ':t', id)
end
if #page == PAGE then return 1 end
for _, call in ipairs(redis.call('HKEYS', gk(goal) .. ':res')) do redis.call('ZREM', P .. 'res', goal .. '|' .. call) end
if g then
  rings_close(g)
  each_lane(g, function(lane, prio) redis.call('DEL', gk(goal) .. ':q:' .. lane .. ':' .. prio) end)
end
for _, suffix in ipairs({ '', ':t', ':in', ':ev', ':esc', ':dead', ':lanes', ':notes', ':facts', ':res', ':w' }) do redis.call('DEL', gk(goal) .. suffix) end
for _, z in ipairs({ 'done', 'goals', 'live', 'dl' }) do redis.call('ZREM', P .. z, goal) end
redis.call('SREM', P .. 'ending', goal)
redis.call('SREM', P .. 'sealing', goal)
return 0
