-- Copies of the sequence ids of some partitions.
--
-- KEYS  1 snapshots
-- ARGV  1 topic id (hex)  2… topic/partition
-- Reply a list: the bytes of each, nil where there is none of this topic
-- Reads only.

local found = {}
for index = 2, #ARGV do
  local kept = redis.call('HGET', KEYS[1], ARGV[index])
  local topic_id, from = nil, nil
  if kept then
    topic_id, from = string.match(kept, '^(%x+) %d+ %d+ ()')
  end
  found[index - 1] = topic_id == ARGV[1] and string.sub(kept, from) or false
end
return found
