#!lua flags=allow-oom
-- settle: call id or empty, goal, ticket or empty, tokens, millionths of a dollar, record (JSON), label, input tokens,
-- output tokens, cached tokens, failed (1 or 0)
-- Whoever spent it, it is booked (I3, I10). With a call id it is booked once: a repeat, or a reservation that was
-- settled at its worst case when it lapsed, books nothing more.   answers 1 when it was booked
local call, goal, id = ARGV[1], ARGV[2], ARGV[3]
-- Numbers come from model servers: one that no counter holds is booked as the most that is believed, never as nothing.
local function bounded(v) return string.format('%.0f', math.min(math.max(tonumber(v) or 0, 0), 1e12)) end
for _, i in ipairs({ 4, 5, 8, 9, 10, 11 }) do if ARGV[i] then ARGV[i] = bounded(ARGV[i]) end end
if redis.call('EXISTS', gk(goal)) == 0 then
  redis.call('ZREM', P .. 'res', goal .. '|' .. call)
  return 0
end
if call ~= '' and not unreserve(goal, call) then return 0 end
local t = spend(goal, id, ARGV[4], ARGV[5])
local label = ARGV[7] or '' -- a program of the version before names none
if label ~= '' then
  local use = P .. 'use:' .. label
  if redis.call('SADD', P .. 'uses', label) == 1 and redis.call('SCARD', P .. 'uses') > 1000 then
    redis.call('SREM', P .. 'uses', label) -- names of models come from outside: no growth without end
  else
    redis.call('HINCRBY', use, 'calls', 1)
    for i, f in ipairs({ 'input', 'output', 'cached', 'failed' }) do redis.call('HINCRBY', use, f, ARGV[7 + i]) end
    redis.call('HINCRBY', use, 'microusd', ARGV[5])
    -- Whose work it is that a reviewer will see.
    if t and string.sub(label, 1, 7) == 'worker|' and t.made_by ~= label then redis.call('HSET', hk(id), 'made_by', label) end
  end
end
event(goal, 'model_call', t, '', '', '', ARGV[6])
return 1
