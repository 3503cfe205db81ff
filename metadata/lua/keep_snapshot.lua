-- Keep a copy of a partition's sequence ids. The snapshot topic has them too: this one is found without reading that.
--
-- KEYS  1 snapshots
-- ARGV  1 topic/partition  2 topic id (hex)  3 number of the snapshot  4 its bytes
-- Reply 1 where Redis holds this one now, 0 where it holds a newer one of the same topic
-- Idempotent: a snapshot replaces only older ones, and those of another topic under the name.

local current = redis.call('HGET', KEYS[1], ARGV[1])
if current then
  local topic_id, number = string.match(current, '^(%x+) (%d+) ')
  if topic_id == ARGV[2] and less(ARGV[3], number) then
    return 0
  end
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. ARGV[3] .. ' ' .. ARGV[4])
return 1
