#!lua flags=allow-oom
-- renew: consumer, lease ms, progress limit ms, run limit ms, number of lanes, lanes…, then per ticket id, epoch, lease id, idle ms
-- answers per ticket {word, ms left}: OK CANCEL LOST
local consumer, lease_ms, progress_limit, run_limit = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local lanes = tonumber(ARGV[5])
for i = 6, 5 + lanes do redis.call('ZADD', P .. 'cons:' .. ARGV[i], NOW, consumer) end
if lanes > 0 then redis.call('EXPIRE', P .. 'c:' .. consumer, 90) end
local out = {}
for i = 6 + lanes, #ARGV, 4 do
  local id, epoch, lease, idle = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2], tonumber(ARGV[i + 3])
  local goal = string.match(id, '^g:(.*)$')
  local word, left = 'LOST', 0
  if goal then
    local g = goal_of(goal)
    if g and not OVER[g.state] and g.lease_id == lease and g.epoch == epoch then
      word, left = 'OK', lease_ms
      redis.call('ZADD', P .. 'lease', 'XX', NOW + lease_ms, id)
    end
  else
    local t = load(id)
    if t and t.owned and t.lease_id == lease and t.epoch == epoch then
      -- Two clocks: the process lives (lease), the work moves (progress), and there is an end to it (run limit).
      local progress = NOW - idle
      local until_ = math.min(NOW + lease_ms, progress + progress_limit, (tonumber(t.started_at) or NOW) + run_limit)
      if until_ > NOW then
        redis.call('ZADD', P .. 'lease', until_, id)
        word, left = 'OK', until_ - NOW
        if t.cancel_asked == '1' or OVER[goal_of(t.goal).state] then word = 'CANCEL' end
      end
    end
  end
  out[#out + 1] = { word, tostring(left) }
end
return out
