#!lua flags=allow-oom
-- patch: goal, epoch, lease id, step id, plan version, inbox events read, operations (JSON), of a replan: why, how many a goal may have
-- answers {OK version} {DUP version} {STALE} {FENCED} {GONE} {REFUSED op reason}; all operations or none
-- A replan is counted even when it changes nothing: what is capped (I11) is how often a model is asked.
local g = goal_of(ARGV[1])
local step, version, read = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
if g and g.last_step == step then return { 'DUP', tostring(g.plan_version) } end
local no = not_manager(g, ARGV[2], ARGV[3])
if no then return { no } end
if g.plan_version ~= version then return { 'STALE' } end
local ops = cjson.decode(ARGV[7])
local why, replans = ARGV[8], 0
if why then
  replans = tonumber(redis.call('HGET', gk(g.id), 'replans')) or 0
  if replans >= tonumber(ARGV[9]) then return { 'REFUSED', '0', 'replans cap reached' } end
end

-- Validate everything first.
local seen, added = {}, {}
local function refuse(i, why) return { 'REFUSED', tostring(i - 1), why } end
for i, op in ipairs(ops) do
  if op.op == 'add' then
    if redis.call('EXISTS', hk(op.id)) == 1 or added[op.id] then return refuse(i, 'ticket is there already') end
    added[op.id] = true
  end
end
local function known(id) return added[id] or redis.call('HGET', hk(id), 'goal') == g.id end
for i, op in ipairs(ops) do
  if op.op == 'add' then
    for _, need in ipairs(op.needs) do
      if not known(need) then return refuse(i, 'need ' .. need .. ' is not known') end
    end
  else
    local t = load(op.id)
    if not t or t.goal ~= g.id then return refuse(i, 'ticket is not known') end
    if t.epoch ~= op.epoch then return { 'STALE' } end
    local edits = tonumber(redis.call('HGET', hk(op.id), 'interventions')) or 0
    local live = not TERMINAL[t.status]
    if op.op == 'rewrite' or op.op == 'review_again' then
      if t.status ~= 'escalated' then return refuse(i, 'is ' .. t.status .. ', not escalated') end
      if edits >= cap_of(g, 'interventions') then return refuse(i, 'interventions cap reached') end
      if op.op == 'rewrite' and #op.set == 0 then return refuse(i, 'an edit must change something') end
      if op.op == 'review_again' and string.sub(t.cause, 1, 6) ~= 'review' and t.cause ~= 'no_reviewer' then
        return refuse(i, 'cause is ' .. t.cause .. ', not the reviewer\'s')
      end
    elseif op.op == 'hand_over' then
      if t.status ~= 'escalated' then return refuse(i, 'is ' .. t.status .. ', not escalated') end
    elseif op.op == 'link' then
      if not known(op.need) or op.need == op.id then return refuse(i, 'need ' .. op.need .. ' is not known') end
      if not live and t.status ~= 'done' then return refuse(i, 'is ' .. t.status) end
    elseif op.op == 'relink' then
      for _, need in ipairs(op.add) do
        if not known(need) or need == op.id then return refuse(i, 'need ' .. need .. ' is not known') end
      end
      if not live and t.status ~= 'done' then return refuse(i, 'is ' .. t.status) end
    else
      if not live then return refuse(i, 'is ' .. t.status) end
      if op.op == 'modify' and #op.set == 0 then return refuse(i, 'an edit must change something') end
      if op.op == 'split' then
        if redis.call('ZCARD', hk(op.id) .. ':o') > PAGE then return refuse(i, 'has too many dependents') end
        if #op.into == 0 then return refuse(i, 'splits into nothing') end
        for _, n in ipairs(op.into) do
          if not known(n) or n == op.id then return refuse(i, 'ticket ' .. n .. ' is not known') end
        end
      end
    end
    if op.op ~= 'link' and op.op ~= 'relink' then
      if seen[op.id] then return refuse(i, 'a second operation on the same ticket') end
      seen[op.id] = true
    end
  end
end

-- Apply.
local who = 'manager'
local order = redis.call('ZCARD', gk(g.id) .. ':t')
local function is_done(id) return redis.call('HGET', hk(id), 'status') == 'done' end
local function edge(need, id)
  redis.call('ZADD', hk(need) .. ':o', 'NX', redis.call('ZCARD', hk(need) .. ':o'), id)
  if not is_done(need) then redis.call('SADD', hk(id) .. ':d', need); return true end
  return false
end
-- What is no longer needed is forgotten on both sides: its end says nothing to this ticket any more.
local function relink(t, op)
  local open
  for _, need in ipairs(op.drop) do
    redis.call('SREM', hk(t.id) .. ':d', need)
    redis.call('ZREM', hk(need) .. ':o', t.id)
  end
  for _, need in ipairs(op.add) do
    if edge(need, t.id) then open = need end
  end
  -- With a revision the ticket is read whole by whoever claims it: what it was planned with no longer holds.
  local set = { 'needs', op.list, 'revision', (tonumber(t.revision) or 0) + 1 }
  local detail = 'needs ' .. op.list
  if open and t.status == 'done' then
    redis.call('HSET', hk(t.id), unpack(set))
    reopen_need(t.id, open, false)
  elseif open and t.status ~= 'blocked' and t.status ~= 'escalated' and t.status ~= 'needs_human' then
    set[#set + 1] = 'permit'; set[#set + 1] = ''
    move(t, 'blocked', { word = 'linked', who = who, set = set, detail = detail })
  elseif t.status == 'blocked' and not needs_open(t) then
    move(t, 'pending', { word = 'ready', who = who, set = set, detail = detail })
  else
    redis.call('HSET', hk(t.id), unpack(set))
    event(g.id, 'linked', t, t.status, t.status, who, detail)
    if t.status == 'blocked' then
      redis.call('SREM', gk(g.id) .. ':dead', t.id)
      fan_push('dead', t, 0)
    end
  end
end
for _, op in ipairs(ops) do
  if op.op == 'add' then
    create(g, op.id, order, op.set, 1, #op.set)
    order = order + 1
    event(g.id, 'added', load(op.id), '', 'blocked', who, '')
  end
end
for _, op in ipairs(ops) do
  if op.op == 'add' then
    for _, need in ipairs(op.needs) do edge(need, op.id) end
  end
end
for _, op in ipairs(ops) do
  local t = op.op ~= 'add' and load(op.id)
  local reason = op.reason or ''
  if op.op == 'rewrite' then
    local set = reset_counters(op.set)
    local edits = tonumber(redis.call('HGET', hk(t.id), 'interventions')) or 0
    for _, v in ipairs({ 'interventions', edits + 1, 'revision', (tonumber(t.revision) or 0) + 1, 'permit', '' }) do set[#set + 1] = v end
    move_to_work(t, 'pending', { word = 'rewritten', who = who, set = set })
  elseif op.op == 'review_again' then
    local edits = tonumber(redis.call('HGET', hk(t.id), 'interventions')) or 0
    move(t, 'reviewing', { word = 'review_again', who = who, set = reset_counters({ 'interventions', edits + 1 }) })
  elseif op.op == 'modify' then
    local set = op.set
    for _, v in ipairs({ 'revision', (tonumber(t.revision) or 0) + 1, 'permit', '' }) do set[#set + 1] = v end
    if t.status == 'blocked' then
      redis.call('HSET', hk(t.id), unpack(set))
      event(g.id, 'modified', t, t.status, t.status, who, '')
    else
      move_to_work(t, 'pending', { word = 'modified', who = who, set = set })
    end
  elseif op.op == 'split' then
    for _, dep in ipairs(redis.call('ZRANGE', hk(t.id) .. ':o', 0, -1)) do
      if redis.call('SREM', hk(dep) .. ':d', t.id) == 1 then
        for _, n in ipairs(op.into) do edge(n, dep) end
        local d = load(dep)
        -- All of its parts may be done already.
        if d.status == 'blocked' and not needs_open(d) then move(d, 'pending', { word = 'ready', who = 'fleet' })
        else fan_push('dead', d, 0) end
      end
    end
    move(t, 'superseded', { word = 'split', who = who, detail = reason })
  elseif op.op == 'skip' then
    move(t, 'skipped', { who = who, detail = reason }); ended(t)
  elseif op.op == 'fail' then
    move(t, 'failed', { who = who, detail = reason }); ended(t)
  elseif op.op == 'cancel' then
    -- The goal can do without it: its end is none that somebody has to mend.
    move(t, 'cancelled', { who = who, detail = reason, set = { 'mandatory', '0' } }); ended(t)
  elseif op.op == 'hand_over' then
    move(t, 'needs_human', { word = 'handed_over', who = who, detail = reason, expiry = op.expiry_ms,
      set = { 'cause_detail', string.sub(reason, 1, 4096) } })
  elseif op.op == 'link' then
    local open = edge(op.need, op.id)
    if open and t.status == 'done' then
      reopen_need(op.id, op.need, false)
    elseif open and t.status ~= 'blocked' and t.status ~= 'escalated' and t.status ~= 'needs_human' then
      move(t, 'blocked', { word = 'linked', who = who, set = { 'permit', '' }, detail = 'needs ' .. op.need })
    else
      event(g.id, 'linked', t, t.status, t.status, who, 'needs ' .. op.need)
      if t.status == 'blocked' then fan_push('dead', t, 0) end
    end
  elseif op.op == 'relink' then
    relink(t, op)
  end
end
for _, op in ipairs(ops) do
  if op.op == 'add' then
    local t = load(op.id)
    if t.status == 'blocked' and not needs_open(t) then move(t, 'pending', { word = 'ready', who = 'fleet' })
    else fan_push('dead', t, 0) end
  end
end
redis.call('LTRIM', gk(g.id) .. ':in', read, -1)
if why then
  redis.call('HSET', gk(g.id), 'replans', replans + 1)
  event(g.id, 'replanned', nil, g.state, g.state, who, why)
end
if #ops > 0 then version = version + 1 end
redis.call('HSET', gk(g.id), 'plan_version', version, 'last_step', step, 'updated_at', NOW, 'stalls', 0)
return { 'OK', tostring(version) }
