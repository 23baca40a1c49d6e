-- ARGV: for each job ID, fence, score, executor/type, line, where to (wait, delay, lease), and when the delay is over or how many
-- milliseconds the lease has.
if call('GET', P .. 'loading') ~= EPOCH then return redis.error_reply('EPOCH another is loading') end
local lanes = {}
for i = 1, #ARGV, 7 do
  local id, kind, line, to = ARGV[i], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5]
  call('HSET', JOBS, id, ARGV[i + 1] .. ' ' .. ARGV[i + 2] .. ' ' .. kind .. '/' .. line)
  if to == 'wait' then
    place(id, ARGV[i + 2], kind, line, lanes)
  elseif to == 'delay' then
    call('ZADD', DELAYED, ARGV[i + 6], id)
  else
    call('ZADD', LEASES, string.format('%.0f', now() + tonumber(ARGV[i + 6])), id)
  end
end
return 'OK'
