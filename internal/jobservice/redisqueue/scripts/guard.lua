if call('GET', P .. 'epoch') ~= EPOCH then return redis.error_reply('EPOCH the data are of another epoch') end
