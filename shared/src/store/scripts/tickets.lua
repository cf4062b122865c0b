#!lua
-- tickets: goal, epoch, lease id, then per ticket id, number of needs, needs…, number of fields, fields…
-- One page of a plan, before it is sealed.   answers OK DUP FENCED GONE
local g = goal_of(ARGV[1])
local no = not_manager(g, ARGV[2], ARGV[3])
if no then return no end
if g.sealed == '1' then return 'DUP' end
local made, i, order = 0, 4, redis.call('ZCARD', gk(g.id) .. ':t')
while i <= #ARGV do
  local id, needs = ARGV[i], tonumber(ARGV[i + 1])
  local first_field = i + 2 + needs + 1
  local fields = tonumber(ARGV[i + 2 + needs])
  if redis.call('EXISTS', hk(id)) == 0 then
    local set = { 'status', 'blocked', 'epoch', 1, 'lease_id', '', 'goal', g.id, 'created_at', NOW, 'updated_at', NOW }
    local mandatory = false
    for f = first_field, first_field + fields - 1 do
      set[#set + 1] = ARGV[f]
      if ARGV[f] == 'mandatory' and ARGV[f + 1] == '1' and (f - first_field) % 2 == 0 then mandatory = true end
    end
    -- Nothing is runnable before the seal: it is a need like any other.
    redis.call('SADD', hk(id) .. ':d', 'seal')
    for k = i + 2, i + 1 + needs do
      redis.call('SADD', hk(id) .. ':d', ARGV[k])
      redis.call('ZADD', hk(ARGV[k]) .. ':o', 'NX', redis.call('ZCARD', hk(ARGV[k]) .. ':o'), id)
    end
    redis.call('HSET', hk(id), unpack(set))
    redis.call('ZADD', gk(g.id) .. ':t', order, id)
    order = order + 1
    redis.call('HINCRBY', gk(g.id), 'n:blocked', 1)
    redis.call('HINCRBY', gk(g.id), 'tickets', 1)
    if mandatory then redis.call('HINCRBY', gk(g.id), 'open_mandatory', 1) end
    made = made + 1
  end
  i = first_field + fields
end
return made > 0 and 'OK' or 'DUP'
