-- Take or keep the right to serve a topic.
--
-- KEYS  1 nodes  2 served  3 leases  4 served:version  5 pulse
-- ARGV  1 topic  2 node id  3 boot  4 lease ms  5 token  6 node id that served it last by the changelog ('' never served)
-- Reply {'granted', node id, boot, lease ms}
--       {'held', node id, boot, ms left}   somebody alive serves it
--       {'settling', '', '', ms to wait}   Redis has not heard all nodes for a lease yet (it was emptied, away or rolled back)
--                                          and the node that served last has neither reported nor left: it may serve still
--       {'unregistered', '', '', '0'}      the caller has no live beat: beat first
-- Idempotent: whoever holds it is granted it again and renews.

local topic, node_id, boot, lease_ms, last_node = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[6]
local now = now_ms()
if live_node(redis.call('HGET', KEYS[1], node_id), now) ~= boot then
  return { 'unregistered', '', '', '0' }
end

local holder, holder_boot, left = live_server(KEYS[1], KEYS[2], KEYS[3], topic, now)
if holder and holder_boot ~= boot then
  return { 'held', holder, holder_boot, int(left) }
end

if not holder and last_node ~= '' and last_node ~= node_id then
  local since = tonumber(redis.call('HGET', KEYS[5], 'since') or int(now))
  local settles = since + lease_ms - now
  local reported = live_node(redis.call('HGET', KEYS[1], last_node), now)
    or tonumber(redis.call('HGET', KEYS[5], 'left:' .. last_node) or '0') >= since
  if settles > 0 and settles <= lease_ms and not reported then
    return { 'settling', '', '', int(settles) }
  end
end

redis.call('ZADD', KEYS[3], int(now + lease_ms), topic)
if not holder then
  redis.call('HSET', KEYS[2], topic, node_id .. ' ' .. boot)
  redis.call('SET', KEYS[4], ARGV[5])
end
return { 'granted', node_id, boot, int(lease_ms) }
