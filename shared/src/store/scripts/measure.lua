#!lua flags=no-writes,allow-oom
-- measure: 'fleet' | 'lane' lane | 'leases' from | 'goals' from, statuses… | 'asks' from. Reads only; a page at most a call (L7).
-- fleet answers {sweep age, longest overdue, delayed, asks, live goals, dead letters, reserved calls, goals for a manager}
-- lane answers {demand, live consumers, age of its oldest ready delivery}, the age among those goals whose turn is near
-- the others answer {entries seen, then word and count, word and count…}
local what, from = ARGV[1], tonumber(ARGV[2])
local ALIVE_MS = 90000

if what == 'fleet' then
  local swept = tonumber(rcall('HGET', KEYS[1], 'last_sweep')) or NOW
  local first = rcall('ZRANGE', P .. 'lease', 0, 0, 'WITHSCORES')[2]
  return { math.max(NOW - swept, 0), first and math.max(NOW - tonumber(first), 0) or 0, rcall('ZCARD', P .. 'delay'),
    rcall('ZCARD', P .. 'ask'), rcall('ZCARD', P .. 'live'), rcall('LLEN', P .. 'dead'), rcall('ZCARD', P .. 'res'),
    rcall('LLEN', P .. 'q:manage') }
end

if what == 'lane' then
  local lane, oldest = ARGV[2], NOW
  for prio = 0, 2 do
    for _, goal in ipairs(rcall('ZRANGE', P .. 'ring:' .. lane .. ':' .. prio, 0, PAGE / 4)) do
      local raw = rcall('LINDEX', gk(goal) .. ':q:' .. lane .. ':' .. prio, 0)
      -- When it was queued stands at the end of the envelope.
      if raw and string.match(raw, '^1%x+:%d+|') then oldest = math.min(oldest, (struct.unpack('<I8', raw, #raw - 7))) end
    end
  end
  return { rcall('SCARD', P .. 'dem:' .. lane), rcall('ZCOUNT', P .. 'cons:' .. lane, NOW - ALIVE_MS, '+inf'),
    math.max(NOW - oldest, 0) }
end

local counts = {}
local function count(word, n) counts[word] = (counts[word] or 0) + n end
local function page(key) return rcall('ZRANGE', P .. key, from, from + PAGE - 1) end
local seen = {}
if what == 'leases' then
  seen = page('lease')
  for _, id in ipairs(seen) do
    if string.sub(id, 1, 2) == 'g:' then
      count('manage', 1)
    else
      local v = rcall('HMGET', hk(id), 'status', 'pool')
      if v[1] == 'reviewing' then count('review', 1) elseif v[1] then count('work.' .. (v[2] or ''), 1) end
    end
  end
elseif what == 'goals' then
  seen = page('live')
  local fields = {}
  for i = 3, #ARGV do fields[i - 2] = 'n:' .. ARGV[i] end
  for _, goal in ipairs(seen) do
    local v = rcall('HMGET', gk(goal), unpack(fields))
    for i = 3, #ARGV do count(ARGV[i], math.max(tonumber(v[i - 2]) or 0, 0)) end
  end
elseif what == 'asks' then
  seen = page('ask')
  for _, id in ipairs(seen) do
    local goal = string.match(id, '^g:(.*)$')
    if goal then
      count(rcall('HGET', gk(goal), 'cause') or '', 1)
    else
      local v = rcall('HMGET', hk(id), 'cause', 'status')
      count(v[2] == 'awaiting_approval' and 'approval' or v[1] or '', 1)
    end
  end
end
local out = { #seen }
for word, n in pairs(counts) do
  out[#out + 1] = word
  out[#out + 1] = n
end
return out
