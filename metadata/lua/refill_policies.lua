-- Bring back the policies that the changelog knows, where Redis knows fewer versions (emptied, rolled back).
--
-- KEYS  1 policies  2 policies:version
-- ARGV  1 highest version the caller knows, then all policies it knows: name, "<version> <body>", …
-- Reply {1 or 0, policies:version}: 1 where the content was replaced
-- Idempotent: afterwards Redis knows that version, and the same call changes nothing.

local replaced = adopt_policies(KEYS[1], KEYS[2], ARGV[1], 2)
return { replaced, redis.call('GET', KEYS[2]) or '0' }
