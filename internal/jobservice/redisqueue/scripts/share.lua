-- ARGV: a request in JSON: queue, types (none: all), limit, visibility in milliseconds, and shares: places that there are, and how many of
-- them each namespace has. Takes jobs for Kubernetes that wait, in each turn the first one of the namespace that has the fewest of the
-- first places, and gives each the next fence. Where all places are taken, only those namespaces get more that have less than an
-- even share. Answers when the leases are over, then ID and fence of each.
local request = cjson.decode(ARGV[1])
local executor, shares, lines = 'kubernetes', request.shares, lineskey(request.queue)

local function head(line)
  local first
  for _, type in ipairs(line.types) do
    local key = waitkey(executor .. '/' .. type, line.name)
    local found = call('ZRANGE', key, 0, 0, 'WITHSCORES')
    if #found > 0 then
      local id, score = found[1], tonumber(found[2])
      if not first or score < first.score or (score == first.score and id < first.id) then
        first = { id = id, score = score, key = key }
      end
    end
  end
  return first
end

-- drop forgets a line in which no job waits, so that there are no more than namespaces that have some.
local function drop(namespace, line)
  local keys = { typeskey(executor, line.name) }
  for _, type in ipairs(line.types) do keys[#keys + 1] = waitkey(executor .. '/' .. type, line.name) end
  call('SREM', lines, namespace)
  call('SREM', KEYSET, unpack(keys))
  call('DEL', keys[1])
end

local waiting, wants = {}, {}
for _, namespace in ipairs(call('SMEMBERS', lines)) do
  local line = { namespace = namespace, name = request.queue .. '/' .. namespace, types = request.types }
  if #line.types == 0 then line.types = call('SMEMBERS', typeskey(executor, line.name)) end
  line.head = head(line)
  if line.head then
    waiting[#waiting + 1] = line
    wants[namespace] = true
  elseif #request.types == 0 then
    drop(namespace, line)
  end
end

for _, share in ipairs(shares) do
  local n = #waiting
  share.total = 0
  for namespace, held in pairs(share.held) do
    share.total = share.total + held
    if held > 0 and not wants[namespace] then n = n + 1 end
  end
  share.even = math.max(1, math.floor(share.places / math.max(1, n)))
end

local function has(share, namespace) return share.held[namespace] or 0 end

local function admitted(namespace)
  for _, share in ipairs(shares) do
    if share.total >= share.places and has(share, namespace) >= share.even then return false end
  end
  return true
end

local function before(one, other)
  local a, b = has(shares[1], one.namespace), has(shares[1], other.namespace)
  if a ~= b then return a < b end
  if one.head.score ~= other.head.score then return one.head.score < other.head.score end
  return one.head.id < other.head.id
end

local taken = {}
while #taken < request.limit do
  local best
  for _, line in ipairs(waiting) do
    if line.head and admitted(line.namespace) and (not best or before(line, best)) then best = line end
  end
  if not best then break end
  taken[#taken + 1] = best.head.id
  call('ZREM', best.head.key, best.head.id)
  for _, share in ipairs(shares) do
    share.total = share.total + 1
    share.held[best.namespace] = has(share, best.namespace) + 1
  end
  best.head = head(best)
end

return grant(taken, request.visibility)
