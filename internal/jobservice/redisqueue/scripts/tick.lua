-- ARGV: limit, milliseconds after which leases that were taken back are looked at again. Lets those wait whose delay is over, and takes
-- back leases that are over: from then on no heartbeat keeps them. Answers ID and fence of each.
local t, limit = now(), tonumber(ARGV[1])
local at = string.format('%.0f', t)
local lanes = {}
for _, id in ipairs(call('ZRANGEBYSCORE', DELAYED, '-inf', at, 'LIMIT', 0, limit)) do
  call('ZREM', DELAYED, id)
  local known = call('HGET', JOBS, id)
  if known then
    local _, score, kind, line = parse(known)
    place(id, score, kind, line, lanes)
  end
end
wake(lanes)

local again = string.format('%.0f', t + tonumber(ARGV[2]))
local answer = {}
local function take(set)
  for _, id in ipairs(call('ZRANGEBYSCORE', set, '-inf', at, 'LIMIT', 0, limit)) do
    call('ZREM', LEASES, id)
    local known = call('HGET', JOBS, id)
    if known then
      call('ZADD', EXPIRING, again, id)
      answer[#answer + 1] = id
      answer[#answer + 1] = string.match(known, '^(%d+)')
    else
      call('ZREM', EXPIRING, id)
    end
  end
end
take(EXPIRING)
take(LEASES)
return answer
