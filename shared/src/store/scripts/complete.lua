#!lua flags=allow-oom
-- complete: per attempt id, epoch, lease id, report, overlay, actor, has roots, base root, new root
-- answers a word each: OK DUP FENCED MOVED GONE CANCELLED
local out = {}
for i = 1, #ARGV, 9 do
  local id, epoch, lease, report, overlay, actor = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5]
  local publishes, base, root = ARGV[i + 6] == '1', ARGV[i + 7], ARGV[i + 8]
  local t = load(id)
  local no = not_owner(t, epoch, lease, 'work_acc')
  if not no and t.status ~= 'running' then no = 'FENCED' end
  local acc = { 'work_acc', epoch .. ':' .. lease }
  if no then
    out[#out + 1] = no
  elseif cancelled_instead(t, acc, { word = 'cancelled' }) then
    out[#out + 1] = 'CANCELLED'
  else
    local set = { acc[1], acc[2], 'result', report, 'work_actor', actor, 'work_by', t.assignee }
    -- The first attempt has no overlay before it that an empty one would have to clear.
    if overlay ~= '' or t.attempts ~= '1' then set[9] = 'overlay_ref'; set[10] = overlay end
    -- Where files and steps of this very attempt are: a later one takes their place in the hash.
    local steps = string.match(report, '"steps_ref":"(%x+)"') or ''
    local made = (overlay ~= '' or steps ~= '') and '{"overlay":"' .. overlay .. '","steps":"' .. steps .. '"}' or nil
    if t.review == 'none' then
      out[#out + 1] = accept(t, publishes and { base = base, new = root }, report, { word = 'completed', set = set, detail = made })
    else
      move(t, 'reviewing', { word = 'completed', set = set, detail = made })
      out[#out + 1] = 'OK'
    end
    -- Accepted by its owner: nobody goes on from its steps any more. After MOVED somebody may still have to.
    if out[#out] == 'OK' and not string.find(report, '"steps_ref":""', 1, true) then rcall('UNLINK', hk(id) .. ':s') end
  end
end
return out
