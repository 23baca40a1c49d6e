-- ARGV: for each job ID, fence, score, executor/type, line, when it may run (0: now). Answers the place of each among those that wait,
-- 0 for those that do not. Saying it again changes nothing; what is older than what is known is passed over.
local lanes, places = {}, {}
for i = 1, #ARGV, 6 do
  if ARGV[i + 5] == '0' then lane(lanes, ARGV[i + 3], ARGV[i + 4]) end
end

-- others are the lanes of the other types of a line.
local function others(l, line)
  if not l.others then
    l.others = {}
    for _, type in ipairs(call('SMEMBERS', l.types)) do
      local other = waitkey(l.executor .. '/' .. type, line)
      if other ~= l.key then l.others[#l.others + 1] = other end
    end
  end
  return l.others
end

for i = 1, #ARGV, 6 do
  local id, fence, score, kind, line, due = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5]
  local value = fence .. ' ' .. score .. ' ' .. kind .. '/' .. line
  local spot, newer = 0, false
  if call('HSETNX', JOBS, id, value) == 0 then
    local known = call('HGET', JOBS, id)
    newer = parse(known) > tonumber(fence)
    if not newer then
      forget(id, known)
      call('HSET', JOBS, id, value)
    end
  end
  if not newer and due ~= '0' then
    call('ZADD', DELAYED, due, id)
  elseif not newer then
    local l = place(id, score, kind, line, lanes)
    spot = call('ZRANK', l.key, id) + 1
    for _, other in ipairs(others(l, line)) do spot = spot + call('ZCOUNT', other, '-inf', '(' .. score) end
  end
  places[#places + 1] = spot
end
wake(lanes)
return places
