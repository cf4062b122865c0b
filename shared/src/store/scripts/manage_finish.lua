#!lua flags=allow-oom
-- manage_finish: goal, epoch, lease id, step id, plan version, events read, what, cause, detail, expiry ms, decided
-- what: continue done failed needs_human   answers {OK} {AGAIN} {DUP} {FENCED} {GONE} {REFUSED why}
local g = goal_of(ARGV[1])
local lease, step, version, read, what = ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
if g and redis.call('HGET', gk(g.id), 'last_finish') == step then return { 'DUP' } end
local no = not_manager(g, ARGV[2], lease)
if no then return { no } end
local unread = redis.call('LLEN', gk(g.id) .. ':in') - read
if what == 'done' then
  -- Code decides what is satisfied (I6).
  if g.sealed ~= '1' then return { 'REFUSED', 'the plan is not sealed' } end
  if g.plan_version ~= version then return { 'REFUSED', 'the plan version moved' } end
  if g.open_mandatory > 0 then return { 'REFUSED', g.open_mandatory .. ' mandatory tickets are open' } end
  if unread > 0 then return { 'REFUSED', 'the inbox holds ' .. unread .. ' unread events' } end
end
redis.call('LTRIM', gk(g.id) .. ':in', read, -1)
redis.call('HSET', gk(g.id), 'last_finish', step, 'losses', 0)
if what == 'done' or what == 'failed' then
  end_goal(g, what, 'manager', ARGV[8], ARGV[9])
  return { 'OK' }
end
redis.call('ZREM', P .. 'lease', 'g:' .. g.id)
redis.call('HSET', gk(g.id), 'lease_id', '', 'updated_at', NOW)
g.lease_id = ''
if what == 'needs_human' and ARGV[8] == 'budget' and (unread > 0 or g.broke == '1' and g.state == 'needs_human') then
  -- The ledger parked it already and said whose budget it is; or it was raised meanwhile, and the next step tries again.
elseif what == 'needs_human' then
  goal_to_person(g, 'manager', ARGV[8], ARGV[9], tonumber(ARGV[10]))
else
  -- Open escalations and dead-need blocks are put back: nothing waits for nobody (I4).
  local waits = 0
  local queued = {}
  for _, e in ipairs(redis.call('LRANGE', gk(g.id) .. ':in', 0, -1)) do
    local ok, d = pcall(cjson.decode, e)
    if ok then queued[(d.kind or '') .. (d.ticket or '')] = true end
  end
  for kind, set in pairs({ escalated = ':esc', dead_need = ':dead' }) do
    for _, id in ipairs(redis.call('SRANDMEMBER', gk(g.id) .. set, PAGE)) do
      waits = waits + 1
      local t = load(id)
      if t and g.state ~= 'needs_human' and not queued[kind .. id] then inbox(g, kind, t, 'still open') end
    end
  end
  if ARGV[11] == '1' then
    redis.call('HSET', gk(g.id), 'stalls', 0)
  elseif waits > 0 and g.state == 'running' then
    local stalls = g.stalls + 1
    redis.call('HSET', gk(g.id), 'stalls', stalls)
    if stalls >= cap_of(g, 'goal_stalls') then
      goal_to_person(g, 'fleet', 'stalled', stalls .. ' steps decided nothing while ' .. waits .. ' tickets waited', tonumber(ARGV[10]))
    end
  end
end
if redis.call('LLEN', gk(g.id) .. ':in') > 0 then
  wake(g)
  return { 'AGAIN' }
end
return { 'OK' }
