#!lua flags=allow-oom
-- steps: id, epoch, lease id, life, entry   answers OK FENCED GONE FULL
-- One more finished step of an attempt, for whoever goes on with it. The first element of the list names the life of the
-- ticket that the steps belong to: after a rejection, a failure or an edit it is another one, and the list begins anew.
local ENTRIES_MAX = 1000
local t = load(ARGV[1])
local no = not_owner(t, ARGV[2], ARGV[3], 'work_acc')
if no then return no == 'GONE' and 'GONE' or 'FENCED' end
if t.status ~= 'running' then return 'FENCED' end
local key = hk(t.id) .. ':s'
if rcall('LINDEX', key, 0) ~= ARGV[4] then
  rcall('DEL', key)
  rcall('RPUSH', key, ARGV[4])
end
if rcall('LLEN', key) > ENTRIES_MAX then return 'FULL' end
rcall('RPUSH', key, ARGV[5])
return 'OK'
