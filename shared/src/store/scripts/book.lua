#!lua flags=allow-oom
-- book: goal, ticket or empty, tokens, millionths of a dollar, record (JSON). Whoever spent it, it is booked (I3, I10).
local goal, id = ARGV[1], ARGV[2]
if redis.call('EXISTS', gk(goal)) == 0 then return 0 end
redis.call('HINCRBY', gk(goal), 'spent_tokens', ARGV[3])
redis.call('HINCRBY', gk(goal), 'spent_microusd', ARGV[4])
local t = id ~= '' and load(id)
if t then
  redis.call('HINCRBY', hk(id), 'spent_tokens', ARGV[3])
  redis.call('HINCRBY', hk(id), 'spent_microusd', ARGV[4])
end
event(goal, 'model_call', t or nil, '', '', '', ARGV[5])
return 1
