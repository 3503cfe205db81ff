-- A node leaves at once: its id, the topics it serves and its claims in progress are free from here on.
--
-- KEYS  1 nodes  2 served  3 leases  4 served:version  5 claims  6 gone:<boot>  7 pulse
-- ARGV  1 node id  2 boot  3 token
-- Reply number of topics that became free
-- Idempotent: a second time there is nothing left. The boot is remembered, so that a beat of it that Redis reads late (from
-- a connection the node gave up) does not bring it back.

local node_id, boot = ARGV[1], ARGV[2]
local me = node_id .. ' ' .. boot
redis.call('SET', KEYS[6], '1', 'PX', REMEMBER_TOKEN_MS)

local entry = redis.call('HGET', KEYS[1], node_id)
if entry and string.match(entry, '^%d+ %d+ (%x+)') == boot then
  redis.call('HDEL', KEYS[1], node_id)
  -- It reported that it serves nothing any more: serve.lua need not wait for its beat.
  redis.call('HSET', KEYS[7], 'left:' .. node_id, int(now_ms()))
end

local freed = 0
local served = redis.call('HGETALL', KEYS[2])
for i = 1, #served, 2 do
  if served[i + 1] == me then
    redis.call('HDEL', KEYS[2], served[i])
    redis.call('ZREM', KEYS[3], served[i])
    freed = freed + 1
  end
end
if freed > 0 then
  redis.call('SET', KEYS[4], ARGV[3])
end

local claims = redis.call('HGETALL', KEYS[5])
for i = 1, #claims, 2 do
  if string.match(claims[i + 1], '^%d+ %d+ %x+ (%x+)') == boot then
    redis.call('HDEL', KEYS[5], claims[i])
  end
end
return freed
