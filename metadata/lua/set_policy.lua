-- Set or delete the policy of a topic or of a prefix; each change has a version of its own, counted per cluster.
--
-- KEYS  1 policies  2 policies:version  3 used:<token>  4 owners  5 claims
-- ARGV  1 name  2 body ('' deletes)  3 'new': only where there is no policy of this name ('' in any case)
--       4 only where the generation is one of these, with spaces between ('' in any case)  5 the generation that the
--       caller knows  6 whose it is the highest: resources with spaces between
--       7 highest version the caller knows, then all policies it knows: name, "<version> <body>", …
-- Reply version of this change: max(known to the caller, Redis) + 1; 0 where it was not made; 'is <generation>' where that
-- is none of those asked for, 'rising' while a claim to a higher one is under way
-- Idempotent by its token: the same token again changes nothing and gets the same version. Where Redis knows fewer versions
-- than the caller its content is replaced by the caller's first.

local done = redis.call('GET', KEYS[3])
if done then
  return done
end
if ARGV[4] ~= '' then
  local generation, pending, now = ARGV[5], '0', now_ms()
  for resource in string.gmatch(ARGV[6], '%S+') do
    local record, claim = redis.call('HGET', KEYS[4], resource), redis.call('HGET', KEYS[5], resource)
    generation = larger(generation, record and string.match(record, '^(%d+)') or '0')
    if claim then
      local _, _, its_generation, _, _, left = claim_parts(claim, now)
      pending = left > 0 and larger(pending, its_generation) or pending
    end
  end
  if less(generation, pending) then
    return 'rising'
  end
  if not string.find(' ' .. ARGV[4] .. ' ', ' ' .. generation .. ' ', 1, true) then
    return 'is ' .. generation
  end
end
adopt_policies(KEYS[1], KEYS[2], ARGV[7], 8)
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
