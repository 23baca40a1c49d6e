-- ARGV: limit, visibility in milliseconds, executor, line, types (none: all). Takes the first jobs that wait and gives each the next
-- fence. Answers when the leases are over, then ID and fence of each.
local limit, executor, line = tonumber(ARGV[1]), ARGV[3], ARGV[4]
local types = {}
for i = 5, #ARGV do types[#types + 1] = ARGV[i] end
if #types == 0 then types = call('SMEMBERS', typeskey(executor, line)) end

local function head(key)
  local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')
  if #first == 0 then return false end
  return { first[1], tonumber(first[2]) }
end

local taken = {}
if #types == 1 then
  local first = call('ZPOPMIN', waitkey(executor .. '/' .. types[1], line), limit)
  for i = 1, #first, 2 do taken[#taken + 1] = first[i] end
else
  local keys, heads = {}, {}
  for i, type in ipairs(types) do
    keys[i] = waitkey(executor .. '/' .. type, line)
    heads[i] = head(keys[i])
  end
  while #taken < limit do
    local best = 0
    for i = 1, #keys do
      local h = heads[i]
      if h and (best == 0 or h[2] < heads[best][2] or (h[2] == heads[best][2] and h[1] < heads[best][1])) then best = i end
    end
    if best == 0 then break end
    taken[#taken + 1] = heads[best][1]
    call('ZREM', keys[best], heads[best][1])
    heads[best] = head(keys[best])
  end
end

return grant(taken, tonumber(ARGV[2]))
