-- Says that EPOCH is loaded.
if call('GET', P .. 'loading') ~= EPOCH then return redis.error_reply('EPOCH another is loading') end
call('SET', P .. 'epoch', EPOCH)
call('DEL', P .. 'loading')
return 'OK'
