-- ARGV: ID, fence, visibility in milliseconds. Answers when the lease is over now, or 0 when there is none.
local known = call('HGET', JOBS, ARGV[1])
if not known or parse(known) ~= tonumber(ARGV[2]) or not call('ZSCORE', LEASES, ARGV[1]) then return '0' end
local over = string.format('%.0f', now() + tonumber(ARGV[3]))
call('ZADD', LEASES, over, ARGV[1])
return over
