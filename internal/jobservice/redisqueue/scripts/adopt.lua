-- ARGV: ID, fence, visibility in milliseconds, score, executor/type, line. Takes up a lease that SQL knows and these data do not.
-- Answers when it is over, or 0 when these data know better. The caller must then look whether SQL still has the lease.
local id, fence = ARGV[1], tonumber(ARGV[2])
local known = call('HGET', JOBS, id)
if call('ZSCORE', EXPIRING, id) then return '0' end
if known then
  local at = parse(known)
  if at > fence or (at == fence and not call('ZSCORE', LEASES, id)) then return '0' end
  forget(id, known)
end
local over = string.format('%.0f', now() + tonumber(ARGV[3]))
call('HSET', JOBS, id, ARGV[2] .. ' ' .. ARGV[4] .. ' ' .. ARGV[5] .. '/' .. ARGV[6])
call('ZADD', LEASES, over, id)
return over
