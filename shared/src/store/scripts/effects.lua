#!lua flags=allow-oom
-- effects: what, id, epoch, lease id, then
--   begin: key, record, permit (1: only with an approved one, which is used up), digest   answers OK KNOWN FENCED GONE DENIED FULL, and the record that was there
--   use: nothing more; an answered permit of a call without an outside effect is used up   answers OK DENIED FENCED GONE
--   retract: key; it did not happen   answers OK FENCED GONE
--   end: key, record; from whoever ran it, owner or not: what happened has happened   answers OK GONE
-- Intent and permit are one step: no call is confirmed twice and none is begun without leaving a trace.
local EFFECTS_MAX = 1000
local what, id, key, record = ARGV[1], ARGV[2], ARGV[5], ARGV[6]
local t = load(id)
if not t or not goal_of(t.goal) then return { 'GONE', '' } end
local all = hk(id) .. ':e'
if what == 'end' then
  if rcall('HEXISTS', all, key) == 0 then return { 'GONE', '' } end
  rcall('HSET', all, key, record)
  event(t.goal, 'effect_done', t, t.status, t.status, t.assignee, string.sub(record, 1, 4096))
  return { 'OK', '' }
end
local no = not_owner(t, ARGV[3], ARGV[4], 'work_acc')
if no then return { no == 'GONE' and 'GONE' or 'FENCED', '' } end
if t.status ~= 'running' then return { 'FENCED', '' } end
if what == 'use' then
  if t.permit_state ~= 'approved' and t.permit_state ~= 'denied' then return { 'DENIED', '' } end
  rcall('HSET', hk(id), 'permit_state', 'used')
  return { 'OK', '' }
elseif what == 'retract' then
  rcall('HDEL', all, key)
  event(t.goal, 'effect_retracted', t, t.status, t.status, t.assignee, key)
  return { 'OK', '' }
end
local known = rcall('HGET', all, key)
if known then return { 'KNOWN', known } end
if rcall('HLEN', all) >= EFFECTS_MAX then return { 'FULL', '' } end
if ARGV[7] == '1' then
  if t.permit_state ~= 'approved' then return { 'DENIED', '' } end
  rcall('HSET', hk(id), 'permit_state', 'used')
end
rcall('HSET', all, key, record)
event(t.goal, 'effect_begun', t, t.status, t.status, t.assignee, string.sub(record, 1, 4096))
return { 'OK', '' }
