-- Who waited for a topic, or for a partition of it, when its queue was kept last.
--
-- KEYS  1 queues
-- ARGV  1 resource
-- Reply queue json, or nil where nobody waited
-- Reads only.

return redis.call('HGET', KEYS[1], ARGV[1])
