-- ARGV: for each job ID, fence that was taken back, fence that SQL knows, and 0 to let it wait again or the visibility in milliseconds
-- when SQL has a lease under its fence. For leases in the set expiring only.
local lanes = {}
for i = 1, #ARGV, 4 do
  local id = ARGV[i]
  local known = call('HGET', JOBS, id)
  if known and call('ZSCORE', EXPIRING, id) then
    local at, score, kind, line = parse(known)
    if at == tonumber(ARGV[i + 1]) then
      forget(id, known)
      call('HSET', JOBS, id, ARGV[i + 2] .. ' ' .. score .. ' ' .. kind .. '/' .. line)
      if ARGV[i + 3] == '0' then
        place(id, score, kind, line, lanes)
      else
        call('ZADD', LEASES, string.format('%.0f', now() + tonumber(ARGV[i + 3])), id)
      end
    end
  end
end
wake(lanes)
return 'OK'
