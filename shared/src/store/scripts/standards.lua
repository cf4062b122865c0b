#!lua flags=allow-oom
-- standards: checklist items that reviews of a tenant's tickets of one kind suggest.
--   notice: tenant, kind, id, ticket, standard (JSON), seen at least, of a kind at most, in shadow at most
--           {NEW | SEEN | SHADOW | KNOWN | FULL}; a ticket counts once, SHADOW: it is proposed by this
--   tally:  tenant, kind, the ticket passes (1 or 0), id, passes (1 or 0), id…    {counted}; only what is in shadow counts
--   decide: tenant, kind, id, promoted | dropped, who, standard (JSON), promoted at most        {OK | GONE | FULL}
local what, tenant, kind = ARGV[1], ARGV[2], ARGV[3]
local kinds, seen = P .. 'std:' .. tenant, P .. 'std:' .. tenant .. ':seen'
local records, book = P .. 'std:' .. tenant .. ':k:' .. kind, P .. 'std:' .. tenant .. ':n:' .. kind
local KINDS_MAX, SEEN_MAX = 200, 10000
local function field(id, name) return redis.call('HGET', book, id .. ':' .. name) end
local function state(id) return field(id, 'state') or 'noticed' end
local function become(id, to, who) redis.call('HSET', book, id .. ':state', to, id .. ':at', NOWS, id .. ':by', who) end
local function count(id, name) return redis.call('HINCRBY', book, id .. ':' .. name, 1) end
local function having(wanted)
  local n = 0
  for _, id in ipairs(redis.call('HKEYS', records)) do
    if state(id) == wanted then n = n + 1 end
  end
  return n
end
-- Room for one more: the oldest that was only noticed goes, then the oldest that was dropped.
local function make_room()
  for _, wanted in ipairs({ 'noticed', 'dropped' }) do
    local oldest, at
    for _, id in ipairs(redis.call('HKEYS', records)) do
      local when = tonumber(field(id, 'at')) or 0
      if state(id) == wanted and (not at or when < at) then oldest, at = id, when end
    end
    if oldest then
      redis.call('HDEL', records, oldest)
      for _, name in ipairs({ 'state', 'at', 'by', 'seen', 'asked', 'failed', 'flips' }) do
        redis.call('HDEL', book, oldest .. ':' .. name)
      end
      return true
    end
  end
  return false
end

if what == 'notice' then
  local id, ticket, least, max, shadow_max = ARGV[4], ARGV[5], tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
  if redis.call('ZSCORE', seen, id .. ':' .. ticket) then return { 'KNOWN' } end
  local new = redis.call('HEXISTS', records, id) == 0
  if new then
    -- Names of roles come from plans: no growth without end.
    if redis.call('SISMEMBER', kinds, kind) == 0 and redis.call('SCARD', kinds) >= KINDS_MAX then return { 'FULL' } end
    if redis.call('HLEN', records) >= max and not make_room() then return { 'FULL' } end
    redis.call('SADD', kinds, kind)
    redis.call('HSET', records, id, ARGV[6])
    become(id, 'noticed', '')
  end
  redis.call('ZADD', seen, NOW, id .. ':' .. ticket)
  redis.call('ZREMRANGEBYRANK', seen, 0, -SEEN_MAX - 1)
  if count(id, 'seen') >= least and state(id) == 'noticed' and having('shadow') < shadow_max then
    become(id, 'shadow', '')
    return { 'SHADOW' }
  end
  return { new and 'NEW' or 'SEEN' }
elseif what == 'tally' then
  local passes, n = ARGV[4] == '1', 0
  for i = 5, #ARGV, 2 do
    local id, pass = ARGV[i], ARGV[i + 1] == '1'
    if state(id) == 'shadow' then
      n = n + 1
      count(id, 'asked')
      if not pass then count(id, 'failed') end
      if not pass and passes then count(id, 'flips') end
    end
  end
  return { n }
end
local id, to = ARGV[4], ARGV[5]
if redis.call('HEXISTS', records, id) == 0 then return { 'GONE' } end
if to == 'promoted' and state(id) ~= 'promoted' and having('promoted') >= tonumber(ARGV[8]) then return { 'FULL' } end
redis.call('HSET', records, id, ARGV[7])
become(id, to, ARGV[6])
return { 'OK' }
