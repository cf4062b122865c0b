#!lua flags=allow-oom
-- seal: goal, epoch, lease id (both empty: go on with a sealed one), total   answers {word, more}
local g = goal_of(ARGV[1])
local set_key = gk(ARGV[1]) .. ':t'
if g and g.sealed ~= '1' then
  local no = not_manager(g, ARGV[2], ARGV[3])
  if no then return { no, '0' } end
  if redis.call('ZCARD', set_key) ~= tonumber(ARGV[4]) then return { 'COUNT', '0' } end
  g.sealed = '1'
  g.state = 'running'
  redis.call('HSET', gk(g.id), 'sealed', '1', 'state', 'running', 'plan_version', 1, 'seal_cursor', 0, 'updated_at', NOW)
  redis.call('SADD', P .. 'sealing', g.id)
  event(g.id, 'goal_sealed', nil, 'planning', 'running', 'manager', ARGV[4])
elseif not g or OVER[g.state] then
  redis.call('SREM', P .. 'sealing', ARGV[1])
  return { 'GONE', '0' }
end
if redis.call('SISMEMBER', P .. 'sealing', g.id) == 0 then return { 'DUP', '0' } end
local cursor = tonumber(redis.call('HGET', gk(g.id), 'seal_cursor')) or 0
local page = redis.call('ZRANGE', set_key, cursor, cursor + PAGE - 1)
for _, id in ipairs(page) do settle_need(id, 'seal', 'done') end
redis.call('HSET', gk(g.id), 'seal_cursor', cursor + #page)
if #page < PAGE then
  redis.call('SREM', P .. 'sealing', g.id)
  if redis.call('ZCARD', set_key) == 0 then inbox(g, 'all_closed', nil, '') end
  return { 'OK', '0' }
end
return { 'OK', '1' }
