-- Set or delete the policy of a topic or of a prefix; each change has a version of its own, counted per cluster.
--
-- KEYS  1 policies  2 policies:version  3 used:<token>
-- ARGV  1 name  2 body ('' deletes)  3 'new': only where there is no policy of this name ('' in any case)
--       4 highest version the caller knows, then all policies it knows: name, "<version> <body>", …
-- Reply version of this change: max(known to the caller, Redis) + 1; 0 where it was not made
-- Idempotent by its token: the same token again changes nothing and gets the same version. Where Redis knows fewer versions
-- than the caller its content is replaced by the caller's first.

local done = redis.call('GET', KEYS[3])
if done then
  return done
end
adopt_policies(KEYS[1], KEYS[2], ARGV[4], 5)
if ARGV[3] == 'new' and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  return '0'
end
local version = successor(redis.call('GET', KEYS[2]) or '0')
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], version .. ' ' .. ARGV[2])
end
redis.call('SET', KEYS[2], version)
redis.call('SET', KEYS[3], version, 'PX', REMEMBER_TOKEN_MS)
return version
