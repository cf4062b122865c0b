#!lua flags=allow-oom
-- decide: per review id, epoch, lease id, verdict, pass, comment, has roots, base root, new root
-- answers a word each: OK DUP FENCED MOVED GONE CANCELLED ESCALATED
local out = {}
-- Whether the first work on a ticket was accepted, for whoever's model did it (the label of `settle`).
local function judged(t, pass)
  local by = t.made_by
  if by == '' or rcall('HSETNX', hk(t.id), 'judged', pass and '1' or '0') == 0 then return end
  rcall('HINCRBY', P .. 'use:' .. by, 'judged', 1)
  if pass then rcall('HINCRBY', P .. 'use:' .. by, 'first_pass', 1) end
end
for i = 1, #ARGV, 9 do
  local id, epoch, lease, verdict, pass, comment = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4] == '1', ARGV[i + 5]
  local publishes, base, root = ARGV[i + 6] == '1', ARGV[i + 7], ARGV[i + 8]
  local t = pass and load(id, 'result') or load(id)
  local no = not_owner(t, epoch, lease, 'review_acc')
  if not no and t.status ~= 'reviewing' then no = 'FENCED' end
  local acc = { 'review_acc', epoch .. ':' .. lease }
  if no then
    out[#out + 1] = no
  elseif cancelled_instead(t, acc, { word = 'cancelled' }) then
    out[#out + 1] = 'CANCELLED'
  else
    judged(t, pass)
    local set = { acc[1], acc[2], 'verdict', verdict, 'review_comment', comment }
    if pass then
      local report = t.result
      out[#out + 1] = accept(t, publishes and { base = base, new = root }, report, { word = 'accepted', set = set, detail = verdict })
    else
      local o = { word = 'rejected', set = set, detail = verdict }
      local to
      -- A person's own files go back to a person, by way of the manager.
      if string.sub(t.work_actor, 1, 7) == 'person:' then to = escalate(t, 'faults', o)
      else to = count(t, 'faults', 'rejected', o) end
      out[#out + 1] = to == 'escalated' and 'ESCALATED' or 'OK'
    end
  end
end
return out
