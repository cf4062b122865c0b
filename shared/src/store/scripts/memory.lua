#!lua flags=allow-oom
-- memory: lessons of a tenant's finished goals.
--   learn:  tenant, lessons max, id, kind, lesson (JSON), id…   but not what a person wrote or forgot   {new ones}
--   edit:   tenant, id, lesson (JSON)                           {1} when it was there
--   forget: tenant, id or * for all                             {lessons forgotten}; they are not learnt again
local what, tenant = ARGV[1], ARGV[2]
local kinds, order = P .. 'mem:' .. tenant, P .. 'mem:' .. tenant .. ':at'
local gone, own = P .. 'mem:' .. tenant .. ':gone', P .. 'mem:' .. tenant .. ':own'
local GONE_MAX = 10000
local function drop(id)
  local kind = redis.call('HGET', kinds, id)
  if not kind then return 0 end
  redis.call('HDEL', P .. 'mem:' .. tenant .. ':k:' .. kind, id)
  redis.call('HDEL', kinds, id)
  redis.call('ZREM', order, id)
  redis.call('SREM', own, id)
  return 1
end

if what == 'learn' then
  local new, max = 0, tonumber(ARGV[3])
  for i = 4, #ARGV, 3 do
    local id, kind = ARGV[i], ARGV[i + 1]
    if not redis.call('ZSCORE', gone, id) and redis.call('SISMEMBER', own, id) == 0 then
      -- A goal that was reopened teaches anew; a ticket's role may be another one now.
      if redis.call('HEXISTS', kinds, id) == 0 then new = new + 1 else drop(id) end
      redis.call('HSET', kinds, id, kind)
      redis.call('HSET', P .. 'mem:' .. tenant .. ':k:' .. kind, id, ARGV[i + 2])
      redis.call('ZADD', order, NOW, id)
    end
  end
  -- The oldest go first.
  for _, id in ipairs(redis.call('ZRANGE', order, 0, -max - 1)) do drop(id) end
  return { new }
elseif what == 'edit' then
  local kind = redis.call('HGET', kinds, ARGV[3])
  if not kind then return { 0 } end
  redis.call('HSET', P .. 'mem:' .. tenant .. ':k:' .. kind, ARGV[3], ARGV[4])
  redis.call('SADD', own, ARGV[3])
  return { 1 }
end
local ids = ARGV[3] == '*' and redis.call('ZRANGE', order, 0, -1) or { ARGV[3] }
local n = 0
for _, id in ipairs(ids) do
  if drop(id) == 1 then
    n = n + 1
    redis.call('ZADD', gone, NOW, id)
  end
end
redis.call('ZREMRANGEBYRANK', gone, 0, -GONE_MAX - 1)
return { n }
