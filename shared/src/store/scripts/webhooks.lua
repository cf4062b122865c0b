#!lua flags=allow-oom
-- webhooks: what is told to the outside; scripts put it in (`hook` in the prelude) while `ctl` says that somebody sends it.
--   listen: 1 or 0   answers OK
--   take: most, milliseconds until another may take the same   answers id, body, … of what is due
--   done: id   answers OK, or GONE
--   again: id, body, delay ms   answers OK, or GONE: it was dropped meanwhile
local what = ARGV[1]
if what == 'listen' then
  redis.call('HSET', P .. 'ctl', 'hooks', ARGV[2])
  return { 'OK' }
end
if what == 'take' then
  local taken = {}
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', P .. 'hooks', '-inf', NOW, 'LIMIT', 0, ARGV[2])) do
    local body = redis.call('HGET', P .. 'hook', id)
    if body then
      redis.call('ZADD', P .. 'hooks', NOW + tonumber(ARGV[3]), id)
      taken[#taken + 1] = id
      taken[#taken + 1] = body
    else
      redis.call('ZREM', P .. 'hooks', id)
    end
  end
  return taken
end
if redis.call('HEXISTS', P .. 'hook', ARGV[2]) == 0 then return { 'GONE' } end
if what == 'done' then
  redis.call('ZREM', P .. 'hooks', ARGV[2])
  redis.call('HDEL', P .. 'hook', ARGV[2])
else
  redis.call('ZADD', P .. 'hooks', NOW + tonumber(ARGV[4]), ARGV[2])
  redis.call('HSET', P .. 'hook', ARGV[2], ARGV[3])
end
return { 'OK' }
