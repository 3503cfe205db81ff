-- Store the queue of a topic, or of a partition of it, in order, from the node that serves it: the next serving node
-- keeps the order.
--
-- KEYS  1 nodes  2 served  3 leases  4 queues
-- ARGV  1 topic  2 node id  3 boot  4 queue json ('' nobody waits)  5 what they wait for: the topic, or its partition
-- Reply 1 where it was kept, 0 where another node serves the topic, or nobody does
-- Idempotent: the same again changes nothing.

local server, server_boot = live_server(KEYS[1], KEYS[2], KEYS[3], ARGV[1], now_ms())
if server ~= ARGV[2] or server_boot ~= ARGV[3] then
  return 0
end
if ARGV[4] == '' then
  redis.call('HDEL', KEYS[4], ARGV[5])
else
  redis.call('HSET', KEYS[4], ARGV[5], ARGV[4])
end
return 1
