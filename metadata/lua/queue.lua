-- Who waited for a topic when its queue was kept last.
--
-- KEYS  1 queues
-- ARGV  1 topic
-- Reply queue json, or nil where nobody waited
-- Reads only.

return redis.call('HGET', KEYS[1], ARGV[1])
