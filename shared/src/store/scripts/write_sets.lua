#!lua flags=allow-oom
-- write_sets: which tickets of a goal declare which path.
--   declare: goal, epoch, lease id, then path, ticket id…   answers OK FENCED GONE
--   owners: goal, ticket id, paths…   answers for each path the key of another ticket that declares it, '' where none does
-- A path may have several writers, one after the other. Whoever ended without being done keeps nobody away.
local WRITERS_MAX = 16
local what, goal = ARGV[1], ARGV[2]
local all = gk(goal) .. ':w'
local function writers(path)
  local ids = {}
  for id in string.gmatch(redis.call('HGET', all, path) or '', '%S+') do ids[#ids + 1] = id end
  return ids
end
if what == 'declare' then
  local g = goal_of(goal)
  local no = not_manager(g, ARGV[3], ARGV[4])
  if no then return no end
  for i = 5, #ARGV, 2 do
    local ids, known = writers(ARGV[i]), false
    for _, id in ipairs(ids) do known = known or id == ARGV[i + 1] end
    if not known then
      ids[#ids + 1] = ARGV[i + 1]
      redis.call('HSET', all, ARGV[i], table.concat(ids, ' ', math.max(1, #ids - WRITERS_MAX + 1)))
    end
  end
  return 'OK'
end
local answer = {}
for i = 4, #ARGV do
  local owner = ''
  for _, id in ipairs(writers(ARGV[i])) do
    local status = redis.call('HGET', hk(id), 'status')
    if id == ARGV[3] then owner = ''; break end
    if status and (status == 'done' or not TERMINAL[status]) then owner = redis.call('HGET', hk(id), 'key') or id end
  end
  answer[#answer + 1] = owner
end
return answer
