#!lua
-- submit_goal: goal id, ready max, deadline (0: none), flat fields…   answers OK DUP BUSY
-- Without allow-oom: a full server refuses new goals and goes on with the old ones.
local id, ready_max, deadline = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
-- The hash comes last and is what makes the goal be there: a call that broke off is simply made again (Q32).
if redis.call('HEXISTS', gk(id), 'state') == 1 then return 'DUP' end
local ready = 0
for _, lane in ipairs(redis.call('SMEMBERS', P .. 'lanes')) do ready = ready + redis.call('SCARD', P .. 'dem:' .. lane) end
if ready > ready_max then return 'BUSY' end
local set = { 'state', 'planning', 'created_at', NOW, 'updated_at', NOW, 'epoch', 1, 'lease_id', '', 'sealed', '0',
  'plan_version', 0, 'in_flight', 0, 'open_mandatory', 0, 'losses', 0, 'stalls', 0, 'tickets', 0, 'version', 1, 'mq', '1' }
for i = 4, #ARGV do set[#set + 1] = ARGV[i] end
redis.call('ZADD', P .. 'live', NOW, id)
redis.call('ZADD', P .. 'goals', NOW, id)
if deadline > 0 then redis.call('ZADD', P .. 'dl', deadline, id) end
redis.call('DEL', gk(id) .. ':ev', gk(id) .. ':in')
event(id, 'goal_submitted', nil, '', 'planning', 'api', '')
redis.call('RPUSH', gk(id) .. ':in', cjson.encode({ v = 1, kind = 'plan', ticket = '', epoch = 0, detail = '', at_ms = NOW }))
redis.call('RPUSH', P .. 'q:manage', id)
token('manage')
redis.call('HSET', gk(id), unpack(set))
return 'OK'
