-- ARGV: for each job ID, fence, score, executor/type, queue, when it may run (0: now). Answers the place of each among those that wait,
-- 0 for those that do not. Saying it again changes nothing; what is older than what is known is passed over.
local woken, places = {}, {}
for i = 1, #ARGV, 6 do
  local id, fence, score, kind, queue, due = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5]
  local known = call('HGET', JOBS, id)
  local spot = 0
  if not (known and parse(known) > tonumber(fence)) then
    if known then forget(id, known) end
    call('HSET', JOBS, id, fence .. ' ' .. score .. ' ' .. kind .. '/' .. queue)
    if due ~= '0' then
      call('ZADD', DELAYED, due, id)
    else
      local key, types, executor = place(id, score, kind, queue, woken)
      spot = call('ZRANK', key, id) + 1
      for _, type in ipairs(call('SMEMBERS', types)) do
        local other = waitkey(executor .. '/' .. type, queue)
        if other ~= key then spot = spot + call('ZCOUNT', other, '-inf', '(' .. score) end
      end
    end
  end
  places[#places + 1] = spot
end
wake(woken)
return places
