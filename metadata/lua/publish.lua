-- Store the changelog's record of a resource, and end the claim that led to it.
--
-- KEYS  1 owners  2 claims
-- ARGV  1 resource  2 owner record  3 token of the claim ('' none: a refill)
-- Reply {1 or 0, owner record of Redis}: 1 where Redis now holds exactly this record, 0 where what it holds is newer
-- Idempotent: a record replaces only one that it supersedes (common.lua).

local resource, record = ARGV[1], ARGV[2]
local current = redis.call('HGET', KEYS[1], resource)
if current ~= record and supersedes(record, current) then
  redis.call('HSET', KEYS[1], resource, record)
  current = record
end

local claim = redis.call('HGET', KEYS[2], resource)
if claim then
  local token, generation = string.match(claim, '^%d+ %d+ (%x+) %x+ (%d+)')
  -- A claim for a lower generation than what the changelog holds by now leads nowhere either.
  if token == ARGV[3] or less(generation, string.match(record, '^(%d+)')) then
    redis.call('HDEL', KEYS[2], resource)
  end
end
return { current == record and 1 or 0, current }
