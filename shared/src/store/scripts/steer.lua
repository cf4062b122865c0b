#!lua flags=allow-oom
-- steer: what, id, who, text   what: cancel_goal cancel_ticket pause resume note reopen_goal grace (ms in text)
-- Needs no goal lease: people never wait for a manager's step.   answers OK DUP NONE or REFUSED why
local what, id, who, text = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if what == 'cancel_ticket' then
  local t = load(id)
  if not t then return { 'NONE' } end
  if TERMINAL[t.status] then return { 'DUP' } end
  if t.owned then
    if t.cancel_asked == '1' then return { 'DUP' } end
    redis.call('HSET', hk(id), 'cancel_asked', '1')
    redis.call('ZADD', P .. 'cancelling', NOW + tonumber(ARGV[5]), id)
    event(t.goal, 'cancel_asked', t, t.status, t.status, who, text)
  else
    move(t, 'cancelled', { who = who, detail = text })
    ended(t)
  end
  return { 'OK' }
end
local g = goal_of(id)
if not g then return { 'NONE' } end
if what == 'reopen_goal' then
  if g.state ~= 'done' and g.state ~= 'failed' then return { 'REFUSED', 'the goal is ' .. g.state .. ', only a done or failed one is reopened' } end
  redis.call('HSET', gk(id), 'state', 'running', 'cause', '', 'cause_detail', '', 'updated_at', NOW, 'late', '', 'broke', '')
  g.broke = ''
  redis.call('ZREM', P .. 'done', id)
  redis.call('SREM', P .. 'ending', id)
  redis.call('ZADD', P .. 'live', NOW, id)
  event(id, 'goal_reopened', nil, g.state, 'running', who, text)
  g.state = 'running'
  add_note(id, text)
  inbox(g, 'answered', nil, text)
  rings_open(g) -- what the end had not cancelled yet
  return { 'OK' }
end
if OVER[g.state] then return { 'DUP' } end
if what == 'cancel_goal' then
  end_goal(g, 'cancelled', who, 'cancelled', text)
elseif what == 'pause' then
  if g.paused == '1' then return { 'DUP' } end
  redis.call('HSET', gk(id), 'paused', '1')
  rings_close(g)
  event(id, 'goal_paused', nil, g.state, g.state, who, text)
elseif what == 'resume' then
  if g.paused ~= '1' then return { 'DUP' } end
  redis.call('HSET', gk(id), 'paused', '')
  g.paused = ''
  rings_open(g)
  event(id, 'goal_resumed', nil, g.state, g.state, who, text)
elseif what == 'note' then
  add_note(id, text)
  event(id, 'note', nil, g.state, g.state, who, text)
  inbox(g, 'note', nil, text)
else
  return { 'REFUSED', 'unknown: ' .. what }
end
return { 'OK' }
