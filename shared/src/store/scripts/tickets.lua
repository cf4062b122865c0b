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
    -- Nothing is runnable before the seal: it is a need like any other.
    redis.call('SADD', hk(id) .. ':d', 'seal')
    for k = i + 2, i + 1 + needs do
      redis.call('SADD', hk(id) .. ':d', ARGV[k])
      redis.call('ZADD', hk(ARGV[k]) .. ':o', 'NX', redis.call('ZCARD', hk(ARGV[k]) .. ':o'), id)
    end
    create(g, id, order, ARGV, first_field, first_field + fields - 1)
    order = order + 1
    made = made + 1
  end
  i = first_field + fields
end
return made > 0 and 'OK' or 'DUP'
