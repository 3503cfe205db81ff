-- Put in front of every script of this directory before it is loaded. Holds how values are laid out, decides nothing.
--
-- Generations, changelog positions and policy versions are int64 and travel as decimal strings without leading zeros:
-- a Lua number is a double and loses what lies above 2^53. Times are Redis milliseconds and fit.
--
-- nodes    {node id -> "<expires> <lease ms> <boot> <json>"}
-- served   {topic -> "<node id> <boot>"}      leases  (sorted set) topic scored with when the right to serve it expires
-- owners   {resource -> "<generation> <position> <session, or - when free> <json>"}
-- claims   {resource -> "<expires> <lease ms> <token> <boot> <generation> <session> <json>"}
-- queues   {resource -> json list of sessions}
-- snapshots {topic/partition -> "<topic id, hex> <covered offset> <number> <bytes>"}
-- policies {name -> "<version> <body>"}

local REMEMBER_TOKEN_MS = 600000 -- how long a token that was used up is recognised

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function int(number)
  return string.format('%.0f', number)
end

-- a < b for decimal strings.
local function less(a, b)
  return #a < #b or (#a == #b and a < b)
end

local function larger(a, b)
  return less(a, b) and b or a
end

-- n + 1 for a decimal string; nil where that would leave int64.
local function successor(n)
  if n == '9223372036854775807' then
    return nil
  end
  local head, nines = string.match(n, '^(%d-)(9*)$')
  if head == '' then
    return '1' .. string.rep('0', #nines)
  end
  return string.sub(head, 1, -2) .. (tonumber(string.sub(head, -1)) + 1) .. string.rep('0', #nines)
end

-- A lease is alive until it expires. One that ends later than its own length from now was given before the server's clock
-- was set back: it counts as expired, or a dead holder would keep it for as long as the clock went back.
local function alive(expires, lease_ms, now)
  return expires > now and expires <= now + lease_ms
end

-- The boot id of a node that is alive, else nil; then its remaining milliseconds and its json.
local function live_node(entry, now)
  if not entry then
    return nil
  end
  local expires, lease, boot, json = string.match(entry, '^(%d+) (%d+) (%x+) (.*)$')
  if alive(tonumber(expires), tonumber(lease), now) then
    return boot, tonumber(expires) - now, json
  end
  return nil
end

-- Whoever serves a topic at this moment: node id, boot and remaining milliseconds, or nil where nobody alive does.
local function live_server(nodes_key, served_key, leases_key, topic, now)
  local entry = redis.call('HGET', served_key, topic)
  if not entry then
    return nil
  end
  local node, boot = string.match(entry, '^(%d+) (%x+)$')
  local left = tonumber(redis.call('ZSCORE', leases_key, topic) or '0') - now
  if left > 0 and live_node(redis.call('HGET', nodes_key, node), now) == boot then
    return node, boot, left
  end
  return nil
end

-- What is known of a resource only moves forward: by generation, within one by changelog position (a failover keeps the
-- generation and writes a later record), and what was released there is behind what was owned.
local function supersedes(candidate, current)
  if not current then
    return true
  end
  local generation, position, session = string.match(candidate, '^(%d+) (%d+) (%S+) ')
  local at_generation, at_position, at_session = string.match(current, '^(%d+) (%d+) (%S+) ')
  if generation ~= at_generation then
    return less(at_generation, generation)
  end
  if position ~= at_position then
    return less(at_position, position)
  end
  return session == '-' and at_session ~= '-'
end

-- Parts of a claim: token, boot, generation, session, json, milliseconds left (0: its lease ran out).
local function claim_parts(entry, now)
  local expires, lease, token, boot, generation, session, json =
    string.match(entry, '^(%d+) (%d+) (%x+) (%x+) (%d+) (%S+) (.*)$')
  local left = 0
  if alive(tonumber(expires), tonumber(lease), now) then
    left = tonumber(expires) - now
  end
  return token, boot, generation, session, json, left
end

-- Replaces the policies where Redis knows fewer versions than the caller does: then it was emptied or rolled back.
-- ARGV from `first` on: name, "<version> <body>", …
local function adopt_policies(policies_key, version_key, version, first)
  if not less(redis.call('GET', version_key) or '0', version) then
    return 0
  end
  redis.call('DEL', policies_key)
  for i = first, #ARGV, 2 do
    redis.call('HSET', policies_key, ARGV[i], ARGV[i + 1])
  end
  redis.call('SET', version_key, version)
  return 1
end
