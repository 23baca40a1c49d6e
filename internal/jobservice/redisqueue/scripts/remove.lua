-- ARGV: ID and fence of each job that has ended. What is newer stays.
for i = 1, #ARGV, 2 do
  local known = call('HGET', JOBS, ARGV[i])
  if known and parse(known) <= tonumber(ARGV[i + 1]) then
    forget(ARGV[i], known)
    call('HDEL', JOBS, ARGV[i])
  end
end
return 'OK'
