-- Forget a topic that Kafka has no more: who owned it, its tickets, queues and sequence ids, and the right to serve it.
--
-- KEYS  1 nodes  2 served  3 leases  4 served:version  5 owners  6 claims  7 tickets  8 queues  9 snapshots
-- ARGV  1 topic  2 node id  3 boot  4 token  5 highest generation that the changelog knows of  6 number of resources
--       7… the resources (the topic, its partitions), then the fields of its sequence ids (topic/partition)
-- Reply 1 where it is forgotten, 0 where another live node serves the topic, or somebody claims or owns it anew: nothing
--       was changed
-- Idempotent: what is gone stays gone.

local topic, resources = ARGV[1], tonumber(ARGV[6])
local now = now_ms()
local server, server_boot = live_server(KEYS[1], KEYS[2], KEYS[3], topic, now)
if server and (server ~= ARGV[2] or server_boot ~= ARGV[3]) then
  return 0
end
for index = 7, 6 + resources do
  local claim = redis.call('HGET', KEYS[6], ARGV[index])
  if claim then
    local _, _, _, _, _, left = claim_parts(claim, now)
    if left > 0 then
      return 0
    end
  end
  local owner = redis.call('HGET', KEYS[5], ARGV[index])
  if owner and less(ARGV[5], string.match(owner, '^(%d+) ')) then
    return 0
  end
end

for index = 7, 6 + resources do
  for _, key in ipairs({ KEYS[5], KEYS[6], KEYS[7], KEYS[8] }) do
    redis.call('HDEL', key, ARGV[index])
  end
end
for index = 7 + resources, #ARGV do
  redis.call('HDEL', KEYS[9], ARGV[index])
end
if redis.call('HDEL', KEYS[2], topic) + redis.call('ZREM', KEYS[3], topic) > 0 then
  redis.call('SET', KEYS[4], ARGV[4])
end
return 1
