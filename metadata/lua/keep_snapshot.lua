-- Keep a copy of a partition's sequence ids. The snapshot topic has them too: this one is found without reading that.
--
-- KEYS  1 snapshots
-- ARGV  1 topic/partition  2 topic id (hex)  3 offset that it covers the log up to  4 its number  5 its bytes
-- Reply 1 where Redis holds this one now, 0 where it holds one of the same topic that covers more, or as much later
-- Idempotent: a snapshot replaces only those that tell less, and those of another topic under the name.

local current = redis.call('HGET', KEYS[1], ARGV[1])
if current then
  local topic_id, covered, number = string.match(current, '^(%x+) (%d+) (%d+) ')
  if topic_id == ARGV[2] and (less(ARGV[3], covered) or (ARGV[3] == covered and less(ARGV[4], number))) then
    return 0
  end
end
redis.call('HSET', KEYS[1], ARGV[1], table.concat({ ARGV[2], ARGV[3], ARGV[4], ARGV[5] }, ' '))
return 1
