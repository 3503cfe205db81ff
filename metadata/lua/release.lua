-- The owner is cleared, if it still is this session under this record; the generation stays.
--
-- KEYS  1 owners
-- ARGV  1 resource  2 generation  3 changelog position of the record that is released  4 session  5 json of that record
-- Reply {1 or 0, owner record of Redis}: 1 where the resource is free at this generation, 0 where somebody newer owns it
-- Idempotent: free stays free. The position keeps a late release from clearing the same session's ownership after a failover.
-- Where Redis knows less than the caller (emptied, rolled back) the release is written down all the same.

local resource, generation, position = ARGV[1], ARGV[2], ARGV[3]
local current = redis.call('HGET', KEYS[1], resource)
local free = generation .. ' ' .. position .. ' - ' .. ARGV[5]
local at_generation, at_position, owner
if current then
  at_generation, at_position, owner = string.match(current, '^(%d+) (%d+) (%S+) ')
  if at_generation == generation and at_position == position and owner ~= ARGV[4] then
    return { owner == '-' and 1 or 0, current }
  end
end
if supersedes(free, current) then
  redis.call('HSET', KEYS[1], resource, free)
  return { 1, free }
end
return { at_generation == generation and owner == '-' and 1 or 0, current }
