-- May this session own the resource (a writer slot)? One claim at a time per resource; it has a lease of its own, and the
-- ownership it leads to is published by publish.lua once Kafka has it.
--
-- KEYS  1 owners  2 tickets  3 claims  4 used:<token>  5 nodes  6 served  7 leases
-- ARGV  1 resource  2 token  3 boot of the claiming node  4 session  5 claim json  6 mode  7 generation asked for ('' none)
--       8 newest owner record in the changelog ('' none)  9 claim lease ms  10 topic it belongs to ('' none)
--       11 generation that this session let go of last, by the changelog ('' none)
-- Reply {status, generation, owner record of Redis ('' none), detail, detail}
--   granted    go on; generation is the new one, or the current one where the session owns it already (reconnect, failover)
--   held       another session owns it and neither the mode nor a generation asked for deposes it
--   lower      the generation asked for is below the current one
--   busy       another claim is in progress: details are its session and the ms until its lease ends; try again
--   elsewhere  another live node serves the topic: details are its node id and boot
--   over       this token's claim has ended (published, abandoned, or replaced after its lease): use a new token
--   exhausted  no generation is left in int64
-- A session that let go and comes back while nobody else owned the resource goes on with its generation (11).
-- The next generation is max(changelog, Redis, asked - 1) + 1, Redis being the highest one it ever gave out (`tickets`). Where
-- the changelog knows more than Redis its record is adopted first: Redis was emptied or rolled back.
-- Idempotent by its token: the same token again gets the same generation and a renewed lease while its claim is in progress.

local resource, token, session, mode, asked, known = ARGV[1], ARGV[2], ARGV[4], ARGV[6], ARGV[7], ARGV[8]
local lease_ms = tonumber(ARGV[9])
local now = now_ms()

local record = redis.call('HGET', KEYS[1], resource)
if known ~= '' and known ~= record and supersedes(known, record) then
  redis.call('HSET', KEYS[1], resource, known)
  record = known
end
record = record or ''

local function answer(status, generation, first, second)
  return { status, generation or '', record, first or '', second or '' }
end

local function grant(generation)
  redis.call('HSET', KEYS[3], resource, int(now + lease_ms) .. ' ' .. ARGV[9] .. ' ' .. token .. ' ' .. ARGV[3] .. ' '
    .. generation .. ' ' .. session .. ' ' .. ARGV[5])
  redis.call('SET', KEYS[4], '1', 'PX', REMEMBER_TOKEN_MS)
  return answer('granted', generation)
end

local rival, rival_left
local claim = redis.call('HGET', KEYS[3], resource)
if claim then
  local its_token, _, its_generation, its_session, _, left = claim_parts(claim, now)
  if its_token == token then
    return grant(its_generation)
  end
  if left > 0 then
    rival, rival_left = its_session, left
  end
end
if redis.call('EXISTS', KEYS[4]) == 1 then
  return answer('over')
end

if ARGV[10] ~= '' then
  local server, server_boot = live_server(KEYS[5], KEYS[6], KEYS[7], ARGV[10], now)
  if server and server_boot ~= ARGV[3] then
    return answer('elsewhere', nil, server, server_boot)
  end
end

local generation, _, owner = string.match(record, '^(%d+) (%d+) (%S+) ')
generation, owner = generation or '0', owner or '-'
local returns = owner == '-' and ARGV[11] == generation and generation ~= '0'
local keeps = (owner == session or returns) and (asked == '' or not less(generation, asked))
if not keeps then
  if asked ~= '' and asked ~= '0' and less(asked, generation) then
    return answer('lower')
  end
  if owner ~= '-' and owner ~= session and asked == '' and mode ~= 'exclusive_with_fencing' then
    return answer('held')
  end
end
if rival then
  return answer('busy', nil, rival, int(rival_left))
end
if keeps then
  return grant(generation)
end

local ticket = successor(larger(generation, redis.call('HGET', KEYS[2], resource) or '0'))
if not ticket then
  return answer('exhausted')
end
ticket = larger(ticket, asked)
redis.call('HSET', KEYS[2], resource, ticket)
return grant(ticket)
