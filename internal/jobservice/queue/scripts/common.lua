-- Stands before each script. The epoch is part of the text: a server that was started anew has no scripts, so that it says NOSCRIPT
-- to each that knew it before, whatever data it has kept.
--
-- {jobs}:epoch      the life of these data
-- {jobs}:jobs       hash: ID -> "<fence> <score> <executor>/<type>/<queue>"
-- {jobs}:w:<key>    sorted set of the jobs that wait, of one executor, type and queue
-- {jobs}:types:<executor>/<queue>  set of the types that a queue had
-- {jobs}:keys       set of the names of the two above
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
  local fence, score, kind, queue = string.match(value, '^(%d+) (%d+) ([^/]+/[^/]+)/(.*)$')
  return tonumber(fence), score, kind, queue
end

local function waitkey(kind, queue) return P .. 'w:' .. kind .. '/' .. queue end

local function forget(id, value)
  call('ZREM', LEASES, id)
  call('ZREM', EXPIRING, id)
  call('ZREM', DELAYED, id)
  if value then
    local _, _, kind, queue = parse(value)
    call('ZREM', waitkey(kind, queue), id)
  end
end

-- lane of the jobs of one kind in a queue; lanes gathers those that a script has used.
local function lane(lanes, kind, queue)
  local name = kind .. '/' .. queue
  local l = lanes[name]
  if not l then
    local executor, type = string.match(kind, '^([^/]+)/(.*)$')
    l = { key = waitkey(kind, queue), executor = executor, queue = executor .. '/' .. queue }
    l.types = P .. 'types:' .. l.queue
    lanes[name] = l
    call('SADD', l.types, type)
    call('SADD', KEYSET, l.key, l.types)
  end
  return l
end

-- place lets a job wait.
local function place(id, score, kind, queue, lanes) call('ZADD', lane(lanes, kind, queue).key, score, id) end

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
