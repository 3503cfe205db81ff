-- Who owns resources and who is claiming them, both as of one moment. Reads only.
--
-- KEYS  1 owners  2 claims
-- ARGV  resources; none: all that have an owner record or a claim
-- Reply {resource, owner record ('' none), session of the claim in progress ('' none), its token, its generation, its ms left, …}

local now = now_ms()
local resources = ARGV
if #ARGV == 0 then
  resources = redis.call('HKEYS', KEYS[1])
  for _, resource in ipairs(redis.call('HKEYS', KEYS[2])) do
    if redis.call('HEXISTS', KEYS[1], resource) == 0 then
      resources[#resources + 1] = resource
    end
  end
end

local reply = {}
for _, resource in ipairs(resources) do
  local row = { resource, redis.call('HGET', KEYS[1], resource) or '', '', '', '', '' }
  local claim = redis.call('HGET', KEYS[2], resource)
  if claim then
    local token, _, generation, session, _, left = claim_parts(claim, now)
    if left > 0 then
      row[3], row[4], row[5], row[6] = session, token, generation, int(left)
    end
  end
  for i = 1, 6 do
    reply[#reply + 1] = row[i]
  end
end
return reply
