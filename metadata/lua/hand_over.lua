-- The node that serves a topic gives it to another live node, or to the first node that asks.
--
-- KEYS  1 nodes  2 served  3 leases  4 served:version
-- ARGV  1 topic  2 node id  3 boot  4 receiving node id ('' whoever asks first)  5 lease ms for the receiver  6 token
-- Reply {'handed', node id, boot}  it is the receiver's now
--       {'freed', '', ''}          nobody serves it now
--       {'absent', '', ''}         the receiver is not alive; nothing was changed
--       {'held', node id, boot}    somebody else serves it; nothing was changed
-- Idempotent: repeated after it worked it finds the receiver in place and answers the same.

local topic, me, to = ARGV[1], ARGV[2] .. ' ' .. ARGV[3], ARGV[4]
local now = now_ms()
local holder, holder_boot = live_server(KEYS[1], KEYS[2], KEYS[3], topic, now)
if holder and holder .. ' ' .. holder_boot ~= me then
  return { holder == to and 'handed' or 'held', holder, holder_boot }
end

if to == '' then
  redis.call('HDEL', KEYS[2], topic)
  redis.call('ZREM', KEYS[3], topic)
  redis.call('SET', KEYS[4], ARGV[6])
  return { 'freed', '', '' }
end

local to_boot = live_node(redis.call('HGET', KEYS[1], to), now)
if not to_boot then
  return { 'absent', '', '' }
end
redis.call('HSET', KEYS[2], topic, to .. ' ' .. to_boot)
redis.call('ZADD', KEYS[3], int(now + tonumber(ARGV[5])), topic)
redis.call('SET', KEYS[4], ARGV[6])
return { 'handed', to, to_boot }
