-- A node registers or renews itself, re-asserts what it serves and who owns it, and learns about everybody else.
--
-- KEYS  1 nodes  2 served  3 leases  4 served:version  5 owners  6 policies:version  7 pulse  8 gone:<boot>
-- ARGV  1 node id  2 boot  3 node json  4 lease ms  5 token  6 served:version the caller has seen ('' none)
--       7 number of topics n, then n topics, then pairs resource, owner record
-- Reply {'left'}                               this boot said goodbye already
--       {'taken', json of the holder, ms left} another live boot has the node id; nothing was changed
--       {'beat', {node id, json, …}, served:version, {topic, "<node id> <boot>", …} or nil where the caller has that version,
--        {topic served by another live node, "<node id> <boot>", …}, number of owner records that were new here, policies:version}
-- Idempotent: repeating it renews the same lease and asserts the same facts. The token names a new state of `served`; a
-- random one, so that after a rollback of Redis the same version never stands for another content.

local node_id, boot, json, lease_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local me = node_id .. ' ' .. boot
local CHUNK = 500

if redis.call('EXISTS', KEYS[8]) == 1 then
  return { 'left' }
end

local now = now_ms()
local live = {}
local known = redis.call('HGETALL', KEYS[1])
local nodes = {}
local longest = lease_ms
for i = 1, #known, 2 do
  local its_boot, left, its_json = live_node(known[i + 1], now)
  if known[i] == node_id then
    if its_boot and its_boot ~= boot then
      return { 'taken', its_json, int(left) }
    end
  elseif its_boot then
    live[known[i] .. ' ' .. its_boot] = true
    nodes[#nodes + 1] = known[i]
    nodes[#nodes + 1] = its_json
    longest = math.max(longest, tonumber(string.match(known[i + 1], '^%d+ (%d+)')))
  else
    redis.call('HDEL', KEYS[1], known[i])
  end
end
redis.call('HSET', KEYS[1], node_id, int(now + lease_ms) .. ' ' .. ARGV[4] .. ' ' .. boot .. ' ' .. json)
live[me] = true
nodes[#nodes + 1] = node_id
nodes[#nodes + 1] = json

-- Since when nobody's beat has been missing for a lease: until a lease after that, somebody alive may not have asserted yet.
local last = redis.call('HGET', KEYS[7], 'last')
if not last or not alive(tonumber(last) + lease_ms, lease_ms, now) then
  redis.call('HSET', KEYS[7], 'since', int(now))
end
redis.call('HSET', KEYS[7], 'last', int(now))

local changed = redis.call('EXISTS', KEYS[4]) == 0
local function forget(topics)
  for first = 1, #topics, CHUNK do
    local final = math.min(first + CHUNK - 1, #topics)
    redis.call('HDEL', KEYS[2], unpack(topics, first, final))
    redis.call('ZREM', KEYS[3], unpack(topics, first, final))
    changed = true
  end
end
forget(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', int(now)))
-- Beyond any lease that was given out: the clock went back.
forget(redis.call('ZRANGEBYSCORE', KEYS[3], '(' .. int(now + longest), '+inf'))

local topics = tonumber(ARGV[7])
local expires = int(now + lease_ms)
local lost = {}
for first = 8, 7 + topics, CHUNK do
  local final = math.min(first + CHUNK - 1, 7 + topics)
  local holders = redis.call('HMGET', KEYS[2], unpack(ARGV, first, final))
  local renewed, taken = {}, {}
  for i = first, final do
    local holder = holders[i - first + 1]
    if holder and holder ~= me and live[holder] then
      lost[#lost + 1] = ARGV[i]
      lost[#lost + 1] = holder
    else
      renewed[#renewed + 1] = expires
      renewed[#renewed + 1] = ARGV[i]
      if holder ~= me then
        taken[#taken + 1] = ARGV[i]
        taken[#taken + 1] = me
      end
    end
  end
  if #renewed > 0 then
    redis.call('ZADD', KEYS[3], unpack(renewed))
  end
  if #taken > 0 then
    redis.call('HSET', KEYS[2], unpack(taken))
    changed = true
  end
end

local fresh = 0
for i = 8 + topics, #ARGV, 2 do
  local current = redis.call('HGET', KEYS[5], ARGV[i])
  if current ~= ARGV[i + 1] and supersedes(ARGV[i + 1], current) then
    redis.call('HSET', KEYS[5], ARGV[i], ARGV[i + 1])
    fresh = fresh + 1
  end
end

if changed then
  redis.call('SET', KEYS[4], ARGV[5])
end
local version = redis.call('GET', KEYS[4])
local served = false
if version ~= ARGV[6] then
  served = redis.call('HGETALL', KEYS[2])
end
return { 'beat', nodes, version, served, lost, fresh, redis.call('GET', KEYS[6]) or '0' }
