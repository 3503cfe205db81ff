-- All policies and their highest version, as of one moment. Reads only.
--
-- KEYS  1 policies  2 policies:version
-- Reply {policies:version, {name, "<version> <body>", …}}

return { redis.call('GET', KEYS[2]) or '0', redis.call('HGETALL', KEYS[1]) }
