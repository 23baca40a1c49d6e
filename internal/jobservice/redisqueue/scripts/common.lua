-- Stands before each script. The epoch is part of the text: a server that was restarted has no scripts, so that it says NOSCRIPT
-- to each that knew it before, whatever data it has kept.
--
-- {jobs}:epoch      the life of these data
-- {jobs}:jobs       hash: ID -> "<fence> <score> <executor>/<type>/<line>"; the line is the queue, and for Kubernetes <queue>/<namespace>
-- {jobs}:w:<key>    sorted set of the jobs that wait, of one executor, type and line
-- {jobs}:types:<executor>/<line>  set of the types that a line had
-- {jobs}:lines:<queue>  set of the namespaces that have a line for Kubernetes
-- {jobs}:keys       set of the names of the three above
-- {jobs}:delayed    sorted set: when they may be tried again
-- {jobs}:leases     sorted set: when the lease is over
-- {jobs}:expiring   sorted set: leases that were over; when to look at them again should the one who took them be gone
local EPOCH = '@EPOCH@'
local P = '{jobs}:'
local JOBS, LEASES, EXPIRING, DELAYED, KEYSET = P .. 'jobs', P .. 'leases', P .. 'expiring', P .. 'delayed', P .. 'keys'
local call = redis.call

local function now()
  local t = call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function parse(value)
  local fence, score, kind, line = string.match(value, '^(%d+) (%d+) ([^/]+/[^/]+)/(.*)$')
  return tonumber(fence), score, kind, line
end

local function waitkey(kind, line) return P .. 'w:' .. kind .. '/' .. line end
local function typeskey(executor, line) return P .. 'types:' .. executor .. '/' .. line end
local function lineskey(queue) return P .. 'lines:' .. queue end

local function forget(id, value)
  call('ZREM', LEASES, id)
  call('ZREM', EXPIRING, id)
  call('ZREM', DELAYED, id)
  if value then
    local _, _, kind, line = parse(value)
    call('ZREM', waitkey(kind, line), id)
  end
end

-- lane of the jobs of one kind in a line; lanes gathers those that a script has used.
local function lane(lanes, kind, line)
  local name = kind .. '/' .. line
  local l = lanes[name]
  if not l then
    local executor, type = string.match(kind, '^([^/]+)/(.*)$')
    local queue = line
    l = { key = waitkey(kind, line), executor = executor, types = typeskey(executor, line) }
    call('SADD', l.types, type)
    call('SADD', KEYSET, l.key, l.types)
    if executor == 'kubernetes' then
      local namespace
      queue, namespace = string.match(line, '^(.*)/([^/]*)$')
      call('SADD', lineskey(queue), namespace)
      call('SADD', KEYSET, lineskey(queue))
    end
    l.queue = executor .. '/' .. queue
    lanes[name] = l
  end
  return l
end

-- place lets a job wait, and answers in which lane.
local function place(id, score, kind, line, lanes)
  local l = lane(lanes, kind, line)
  call('ZADD', l.key, score, id)
  return l
end

-- wake tells the queues of lanes.
local function wake(lanes)
  local told = {}
  for _, l in pairs(lanes) do
    if not told[l.queue] then
      told[l.queue] = true
      call('PUBLISH', P .. 'wake', l.queue)
    end
  end
end

-- grant leases jobs that were taken out of their lines for a time in milliseconds, each under the next fence. Answers when the leases are
-- over, then ID and fence of each.
local function grant(taken, visibility)
  local over = string.format('%.0f', now() + visibility)
  local answer = { over }
  for _, id in ipairs(taken) do
    local known = call('HGET', JOBS, id)
    if known then
      local fence, score, kind, line = parse(known)
      local next = string.format('%.0f', fence + 1)
      call('HSET', JOBS, id, next .. ' ' .. score .. ' ' .. kind .. '/' .. line)
      call('ZADD', LEASES, over, id)
      answer[#answer + 1] = id
      answer[#answer + 1] = next
    end
  end
  return answer
end
