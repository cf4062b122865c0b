#!lua flags=allow-oom
-- answer: id, expected epoch (0: any), request id, who, decision word, note, flat edit (JSON list), overlay ref, permit args (JSON), new budget of tokens, digest of the permit args,
-- new budget of millionths of a dollar
-- People's decisions on tickets and goals.   answers {OK} {DUP} {STALE} {NONE} {REFUSED why}
local id, expected, request, who, word, note = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local t = load(id)
if not t then
  local g = goal_of(id)
  if not g then return { 'NONE' } end
  if redis.call('HGET', gk(id), 'last_request') == request then return { 'DUP' } end
  if word ~= 'answer' and word ~= 'approve_plan' and word ~= 'deny_plan' then
    return { 'REFUSED', 'a goal takes the decision answer, not ' .. word }
  end
  if expected > 0 and g.epoch ~= expected then return { 'STALE' } end
  if g.state ~= 'needs_human' then return { 'REFUSED', 'the goal is ' .. g.state .. ', nobody asked' } end
  local asked = redis.call('HMGET', gk(id), 'cause', 'cause_detail', 'given_plan_ref')
  if (asked[1] == 'plan_approval') == (word == 'answer') then
    return { 'REFUSED', word == 'answer' and 'its plan waits: approve or deny it' or 'no plan of it waits to be approved' }
  end
  if word == 'deny_plan' and asked[3] and asked[3] ~= '' then
    -- Nobody but who wrote the file can mend it.
    redis.call('HSET', gk(id), 'last_request', request)
    end_goal(g, 'cancelled', who, 'plan_denied', note)
    return { 'OK' }
  end
  redis.call('HSET', gk(id), 'late', '', 'last_request', request)
  if ARGV[10] ~= '' then redis.call('HSET', gk(id), 'budget_tokens', ARGV[10]) end
  if (ARGV[12] or '') ~= '' then redis.call('HSET', gk(id), 'budget_microusd', ARGV[12]) end -- the version before names none
  g.late = ''
  local said = nil
  if word == 'approve_plan' then
    said = 'plan_approved'
    redis.call('HSET', gk(id), 'approve_plan', '')
  elseif word == 'deny_plan' then
    said = 'plan_denied'
    redis.call('HSET', gk(id), 'plan_ref', '')
    redis.call('HINCRBY', gk(id), 'replans', 1)
  end
  -- Who plans anew knows what was not wanted.
  local told = note
  if word == 'deny_plan' then told = 'Your plan was denied' .. (note ~= '' and ': ' .. note or '') .. '\nIt was:\n' .. (asked[2] or '') end
  add_note(id, told)
  -- Of the planner's own questions the answer is news of the plan; of money or a model's failure it is none.
  goal_answered(g, who, note, said, (asked[1] == 'planner_asks' or asked[1] == 'stalled') and note or nil)
  return { 'OK' }
end
if redis.call('HGET', hk(id), 'last_request') == request then return { 'DUP' } end
if expected > 0 and t.epoch ~= expected then return { 'STALE' } end
local g = goal_of(t.goal)
if word ~= 'reopen' and OVER[g.state] then return { 'REFUSED', 'the goal is ' .. g.state } end
local set = { 'last_request', request }
-- Whoever decides on a ticket has answered its goal too, which waited for just that.
local function goal_goes_on()
  -- Not when it waits for money: that is a question of its own.
  if g.state ~= 'needs_human' or g.broke == '1' then return end
  redis.call('ZREM', P .. 'ask', 'g:' .. g.id)
  redis.call('HSET', gk(g.id), 'state', 'running', 'stalls', 0, 'cause', '', 'cause_detail', '', 'due_at', '')
  event(g.id, 'goal_answered', nil, 'needs_human', 'running', who, word .. ' of a ticket')
  g.state = 'running'
end
if word == 'retry' then
  if t.status ~= 'needs_human' then return { 'REFUSED', 'the ticket is ' .. t.status .. ', not needs_human' } end
  for _, v in ipairs(cjson.decode(ARGV[7])) do set[#set + 1] = v end
  for _, v in ipairs({ 'note', note, 'revision', (tonumber(t.revision) or 0) + 1, 'permit', '', 'work_actor', '' }) do set[#set + 1] = v end
  move_to_work(t, 'pending', { word = 'person_retry', who = who, detail = note, set = reset_counters(set) })
elseif word == 'deliver' then
  if t.status ~= 'needs_human' then return { 'REFUSED', 'the ticket is ' .. t.status .. ', not needs_human' } end
  -- A person's files are published by a reviewer too: policy none becomes code.
  if t.review == 'none' then set[#set + 1] = 'review'; set[#set + 1] = 'code' end
  for _, v in ipairs({ 'overlay_ref', ARGV[8], 'work_actor', 'person:' .. who, 'work_by', who, 'result', note }) do set[#set + 1] = v end
  move(t, 'reviewing', { word = 'person_delivers', who = who, set = reset_counters(set) })
elseif word == 'skip' or word == 'fail' then
  if TERMINAL[t.status] then return { 'REFUSED', 'the ticket is ' .. t.status .. ' already' } end
  move(t, word == 'skip' and 'skipped' or 'failed', { who = who, detail = note, set = set })
  ended(t)
elseif word == 'approve' or word == 'deny' then
  if t.status ~= 'awaiting_approval' then return { 'REFUSED', 'the ticket is ' .. t.status .. ', not awaiting_approval' } end
  -- The stored call itself stays byte for byte: cjson would change empty lists.
  for _, v in ipairs({ 'permit_state', word == 'approve' and 'approved' or 'denied', 'permit_note', note, 'permit_args', ARGV[9],
    'permit_digest', ARGV[11] or '' }) do
    set[#set + 1] = v
  end
  if ARGV[9] ~= '' then note = 'arguments edited, digest ' .. (ARGV[11] or '') end
  move_to_work(t, 'pending', { word = word == 'approve' and 'approved' or 'denied', who = who, detail = note, set = set, head = true })
elseif word == 'reopen' then
  if not TERMINAL[t.status] or t.status == 'superseded' then
    return { 'REFUSED', 'the ticket is ' .. t.status .. ', only an ended one is reopened' }
  end
  local was_done = t.status == 'done'
  if OVER[g.state] then
    redis.call('HSET', gk(g.id), 'state', 'running', 'cause', '', 'cause_detail', '', 'updated_at', NOW, 'late', '', 'broke', '')
    g.broke = ''
    redis.call('ZREM', P .. 'done', g.id)
    redis.call('SREM', P .. 'ending', g.id)
    redis.call('ZADD', P .. 'live', NOW, g.id)
    event(g.id, 'goal_reopened', nil, g.state, 'running', who, note)
    g.state = 'running'
    rings_open(g) -- what the end had not cancelled yet
  end
  for _, v in ipairs({ 'note', note, 'generation', (tonumber(t.generation) or 0) + 1, 'interventions', 0, 'permit', '', 'work_actor', '' }) do set[#set + 1] = v end
  move_to_work(t, 'pending', { word = 'reopened', who = who, detail = note, set = reset_counters(set) })
  t.generation = (tonumber(t.generation) or 0) + 1
  if was_done then
    for _, d in ipairs(redis.call('ZRANGE', hk(id) .. ':o', 0, PAGE - 1)) do reopen_need(d, id, false) end
    if redis.call('ZCARD', hk(id) .. ':o') > PAGE then fan_push('open', t, PAGE) end
  end
else
  return { 'REFUSED', 'a ticket does not take the decision ' .. word }
end
goal_goes_on()
return { 'OK' }
