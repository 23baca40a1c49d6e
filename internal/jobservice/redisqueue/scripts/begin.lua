-- Forgets all data, and says that EPOCH is being loaded.
call('DEL', P .. 'epoch')
call('SET', P .. 'loading', EPOCH)
for _, key in ipairs(call('SMEMBERS', KEYSET)) do call('UNLINK', key) end
call('UNLINK', KEYSET, JOBS, LEASES, EXPIRING, DELAYED)
return 'OK'
