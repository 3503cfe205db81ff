-- A claim that leads to nothing is given up, so that the next one need not wait for its lease.
--
-- KEYS  1 claims
-- ARGV  1 resource  2 token
-- Reply 1 where the claim was this token's, else 0
-- Idempotent: what is gone stays gone; the claim of another token is never touched.

local claim = redis.call('HGET', KEYS[1], ARGV[1])
if claim and string.match(claim, '^%d+ %d+ (%x+)') == ARGV[2] then
  redis.call('HDEL', KEYS[1], ARGV[1])
  return 1
end
return 0
