--------------------------- MODULE ExclusiveTopic ---------------------------
(***************************************************************************)
(* One governed Kafka topic behind several sidecar nodes.                  *)
(*                                                                         *)
(* At any time ONE client session owns the topic.  The nodes decide who    *)
(* owns it, Kafka's producer epochs enforce it, and an internal compacted  *)
(* topic (the changelog) remembers it.  Redis is only a hint.              *)
(*                                                                         *)
(* A node takes the topic over in 7 steps (same numbers in the actions and  *)
(* in sidecar/takeover/takeover.py):                                       *)
(*   0 look at the changelog         without fencing; a session that lost  *)
(*                                   the topic ends here                   *)
(*   1 Redis compare-and-set         arbitration only; gives a ticket.     *)
(*                                   Without Redis the last owner goes on  *)
(*   2 note tails (Tails.tla),       Kafka's coordinator gives epoch E     *)
(*     InitProducerId                                                      *)
(*   3 fence                         marker of epoch E on every data       *)
(*                                   partition AND on the changelog        *)
(*   4 read the changelog to that    what step 0 saw must still hold, else *)
(*     marker                        all begins anew                       *)
(*   5 read the tail of every data   which sequence numbers of my session  *)
(*     partition                     are in the log already                *)
(*   6 commit                        append {generation, session, E,       *)
(*                                   partitions} to the changelog, at E    *)
(*   7 publish to Redis, serve                                             *)
(* Partitions may be added; a broker that is asked for them may lag behind.*)
(*                                                                         *)
(* There are two kinds of takeover:                                        *)
(*   "change"    a NEW session becomes the owner.  Its id was minted for   *)
(*               this very takeover and is never used for another one.     *)
(*   "failover"  a session that exists already moves to another node.  It  *)
(*               must still be the owner according to the changelog; the   *)
(*               generation stays.                                         *)
(*                                                                         *)
(* How failures appear in the model:                                       *)
(*   - slow or lost message:  it stays in `net`; it is delivered at any    *)
(*     later time, or never.                                               *)
(*   - paused node: a node takes no step for as long as it likes.          *)
(*   - crashed node: Crash; its memory is gone, its messages are not.      *)
(*   - lost reply: Ack simply does not happen.                             *)
(*   - client retries: a client may send any sequence number to any node   *)
(*     at any time, as often as it likes, so clients need no variables.    *)
(*   - Redis: RedisLoss sets it back to any older value or to nothing.     *)
(*                                                                         *)
(* What is taken for granted (NOT checked here):                           *)
(*   - a partition never loses an accepted entry (Tails.tla: what of it is *)
(*     committed);                                                         *)
(*   - a partition never forgets the epoch, and epochs are never used up   *)
(*     (KeepAlive.tla);                                                    *)
(*   - one slot (Slots.tla: several);                                      *)
(*   - nobody writes to the topic except through the nodes;                *)
(*   - no partition is removed.                                            *)
(* Only safety is checked, no liveness.                                    *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
  Nodes,       \* sidecar nodes
  Sessions,    \* client sessions
  Parts,       \* data partitions of the topic
  FirstParts,  \* those that it has when it begins; the others are added
  MaxSeq,      \* a session sends records 1..MaxSeq to each partition
  MaxEpoch,    \* bound: number of epochs that the coordinator hands out
  MaxRedis     \* bound: highest ticket

\* Switches.  TRUE is the protocol; FALSE is a mistake that TLC must catch.
CONSTANTS
  UseEpochs,         \* partitions reject stale epochs (FALSE: Redis CAS only)
  FenceData,         \* step 3 covers the data partitions
  FenceChangelog,    \* step 3 covers the changelog
  CheckSession,      \* steps 0, 4: a failover stops if its session is not owner
  LookAgain,         \* step 4: what step 0 saw must still hold
  NoFewer,           \* no fewer partitions than any record names (FALSE: what a
                     \* broker says that may lag behind)
  GenFromChangelog,  \* steps 1, 6 look at the changelog, not at Redis alone
  WaitForClaim,      \* step 7 waits until the changelog accepted the claim
  TailAfterFence,    \* the tail is read after the fence, not before it
  AckAfterAccept     \* a record is acked only after the partition took it

VARIABLES
  coordEpoch,  \* coordinator: the last epoch that it handed out
  redis,       \* Redis: highest generation it knows, 0 = nothing.  (Its
               \* owner field only routes requests; no step depends on it.)
  minted,      \* session ids in use so far
  log,         \* log[p]: everything partition p accepted, in order
  net,         \* messages on their way to a partition
  node,        \* node[n]: memory of node n
  acked,       \* <<partition, session, sequence>> acknowledged to a client
  there,       \* the partitions that the topic has
  late         \* a partition took a record of a session whose successor's claim
               \* was in the changelog already

vars == <<coordEpoch, redis, minted, log, net, node, acked, there, late>>

-----------------------------------------------------------------------------
(* Helpers                                                                 *)

Changelog == "changelog"
AllParts  == Parts \cup {Changelog}
NoSession == "none"
Seqs      == 1..MaxSeq

Max(S) == CHOOSE x \in S : \A y \in S : y <= x

\* The three sorts of log entry.  (All have the same fields.)
Marker(e)        == [type |-> "fence", e |-> e, g |-> 0, s |-> NoSession, q |-> 0]
Owner(e, g, s, ps) == [type |-> "own", e |-> e, g |-> g, s |-> s,         q |-> ps]
Data(e, g, s, q) == [type |-> "data",  e |-> e, g |-> g, s |-> s,         q |-> q]

Msg(p, entry) == [to |-> p, entry |-> entry]

Has(p, entry) == \E i \in DOMAIN log[p] : log[p][i] = entry

\* The highest epoch that partition p has seen, from a marker or from data.
PartEpoch(p) == Max({log[p][i].e : i \in DOMAIN log[p]} \cup {0})

\* The last ownership record.  Older ones may have been compacted away.
LastOwner ==
  LET at == {i \in DOMAIN log[Changelog] : log[Changelog][i].type = "own"}
  IN  IF at = {} THEN Owner(0, 0, NoSession, {}) ELSE log[Changelog][Max(at)]

\* Step 5.  The partitions may be read one after the other: behind the fence
\* only somebody with a newer epoch can add to them, and then we are fenced.
Tail5(s) ==
  [p \in Parts |-> {q \in Seqs : \E i \in DOMAIN log[p] :
      log[p][i].type = "data" /\ log[p][i].s = s /\ log[p][i].q = q}]

Unknown == [p \in Parts |-> {}]

Idle == [pc |-> "idle", kind |-> "none", s |-> NoSession, e |-> 0, g |-> 0,
         known |-> Unknown, saw |-> 0, ps |-> {}]

FenceSet(ps) == (IF FenceData      THEN ps          ELSE {})
           \cup (IF FenceChangelog THEN {Changelog} ELSE {})

\* What brokers may say of the topic's partitions; what records name at least.
Told  == {FirstParts, there}
Named == UNION {log[Changelog][i].q : i \in {j \in DOMAIN log[Changelog] : log[Changelog][j].type = "own"}}

-----------------------------------------------------------------------------
Init ==
  /\ coordEpoch = 0
  /\ redis = 0
  /\ minted = {}
  /\ log = [p \in AllParts |-> <<>>]
  /\ net = {}
  /\ node = [n \in Nodes |-> Idle]
  /\ acked = {}
  /\ there = FirstParts
  /\ late = FALSE

-----------------------------------------------------------------------------
(* Kafka                                                                   *)

\* Kafka: a partition accepts a message unless its epoch is too old.  Messages of
\* one producer epoch arrive in the order in which they were sent: Kafka's
\* producer sequence numbers see to that, and also drop network duplicates.
\* What has become stale on this partition is rejected for ever, so it is
\* taken out of `net` at once (this only makes the state space smaller).
Accept(m) ==
  LET p == m.to
      e == m.entry.e
  IN  /\ UseEpochs => e >= PartEpoch(p)
      /\ m.entry.type = "data" =>
           ~ \E x \in net : /\ x.to = p /\ x.entry.type = "data"
                            /\ x.entry.e = e /\ x.entry.q < m.entry.q
      /\ log' = [log EXCEPT ![p] = Append(@, m.entry)]
      /\ net' = {x \in net \ {m} : ~(UseEpochs /\ x.to = p /\ x.entry.e < e)}
      /\ late' = (late \/ (m.entry.type = "data" /\ LastOwner.e > e /\ LastOwner.s # m.entry.s))
      /\ UNCHANGED <<coordEpoch, redis, minted, node, acked, there>>

\* Kafka: somebody adds partitions.
AddPartitions ==
  /\ there # Parts
  /\ there' = Parts
  /\ UNCHANGED <<coordEpoch, redis, minted, log, net, node, acked, late>>

-----------------------------------------------------------------------------
(* Takeover                                                                *)

Begin(n, s, kind, ticket, ps) ==
  /\ NoFewer => Named \subseteq ps
  /\ node' = [node EXCEPT ![n] = [pc |-> "ticket", kind |-> kind, s |-> s, e |-> 0, g |-> ticket,
                                  known |-> Unknown, saw |-> Len(SelectSeq(log[Changelog], LAMBDA r : r.type = "own")),
                                  ps |-> ps]]
  /\ UNCHANGED <<coordEpoch, log, net, acked, there, late>>

\* Steps 0 and 1.  Compare-and-set redis -> redis + 1.  The result is the ticket:
\* a proposal for the generation.  (A generation that the client asks for has
\* the same effect as a ticket of that size.)
\* sidecar/takeover/arbitration.py: Arbitration.claim
Arbitrate(n, s, kind, ps) ==
  /\ node[n].pc = "idle"
  /\ redis < MaxRedis /\ coordEpoch < MaxEpoch          \* bounds of the model
  /\ kind = "change"   => s \notin minted
  /\ kind = "failover" => s \in minted /\ (CheckSession => LastOwner.s = s)
  /\ redis' = redis + 1
  /\ minted' = minted \cup {s}
  /\ Begin(n, s, kind, redis + 1, ps)

\* Steps 0 and 1 while Redis is away: who is the owner by the changelog goes on.
\* sidecar/takeover/arbitration.py: Arbitration.claim
GoOnAlone(n, ps) ==
  /\ node[n].pc = "idle" /\ coordEpoch < MaxEpoch
  /\ LastOwner.s # NoSession
  /\ UNCHANGED <<redis, minted>>
  /\ Begin(n, LastOwner.s, "failover", 0, ps)

\* Steps 2 and 3.  InitProducerId, then send the markers.  One action is
\* enough: a pause between the two looks just like slow markers.
\* sidecar/fencing/topic.py: fence_topic
OpenAndFence(n) ==
  /\ node[n].pc = "ticket"
  /\ coordEpoch < MaxEpoch                               \* bound of the model
  /\ coordEpoch' = coordEpoch + 1
  /\ net' = net \cup {Msg(p, Marker(coordEpoch + 1)) : p \in FenceSet(node[n].ps)}
  /\ node' = [node EXCEPT
       ![n].pc = "fencing",
       ![n].e = coordEpoch + 1,
       ![n].known = IF TailAfterFence THEN Unknown ELSE Tail5(node[n].s)]
  /\ UNCHANGED <<redis, minted, log, acked, there, late>>

Fenced(n) == \A p \in FenceSet(node[n].ps) : Has(p, Marker(node[n].e))

\* Steps 4 to 6.  The fence is complete on every partition: read the changelog,
\* then the tails, and send the record that commits.  (A pause between reading
\* and sending looks just like a slow record.)
\* sidecar/takeover/takeover.py: Takeover._commit
ReadAndCommit(n) ==
  LET me   == node[n]
      last == LastOwner
      seen == Len(SelectSeq(log[Changelog], LAMBDA r : r.type = "own"))
      gen  == IF me.kind = "failover" THEN last.g
              ELSE IF GenFromChangelog THEN Max({last.g + 1, me.g}) ELSE me.g
      rec  == Owner(me.e, gen, me.s, me.ps)
  IN  /\ me.pc = "fencing"
      /\ Fenced(n)
      /\ IF \/ LookAgain /\ seen # me.saw
            \/ me.kind = "failover" /\ CheckSession /\ LookAgain /\ last.s # me.s
           THEN \* Begin anew; somebody else owns the topic: this session is fenced.
                /\ node' = [node EXCEPT ![n] = Idle]
                /\ UNCHANGED net
           ELSE /\ node' = [node EXCEPT ![n].pc = "claiming", ![n].g = gen,
                            ![n].known = IF TailAfterFence THEN Tail5(me.s) ELSE @]
                /\ net' = net \cup {Msg(Changelog, rec)}
      /\ UNCHANGED <<coordEpoch, redis, minted, log, acked, there, late>>

\* Step 7.  The record is in the changelog: tell Redis, which only ever raises
\* its number, and serve.
\* sidecar/takeover/arbitration.py: Arbitration.publish
Publish(n) ==
  LET me == node[n]
  IN  /\ me.pc = "claiming"
      /\ WaitForClaim => Has(Changelog, Owner(me.e, me.g, me.s, me.ps))
      /\ node' = [node EXCEPT ![n].pc = "serving"]
      /\ redis' = Max({redis, me.g})
      /\ UNCHANGED <<coordEpoch, minted, log, net, acked, there, late>>

-----------------------------------------------------------------------------
(* Serving                                                                 *)

\* The owner's client (re)sends record q for partition p.  It is forwarded
\* only if it is neither in the log nor on its way, and only in order.  (A
\* partition that the epoch does not cover needs another takeover first.)
\* sidecar/exclusive/writer.py: SlotWriter.write
Forward(n, p, q) ==
  LET me == node[n]
  IN  /\ me.pc = "serving"
      /\ p \in me.ps
      /\ q \notin me.known[p]
      /\ \A r \in 1..(q - 1) : r \in me.known[p]
      /\ net' = net \cup {Msg(p, Data(me.e, me.g, me.s, q))}
      /\ node' = [node EXCEPT ![n].known[p] = @ \cup {q}]
      /\ UNCHANGED <<coordEpoch, redis, minted, log, acked, there, late>>

\* The node acks q: its own forwarded batch was accepted, or the record was
\* found by step 5 (a retry).  The node may have been deposed meanwhile; the
\* ack is late then, but true: the record went in before the fence.
\* sidecar/forwarder/lane.py: Lane.settled
Ack(n, p, q) ==
  LET me == node[n]
  IN  /\ me.pc = "serving"
      /\ q \in me.known[p]
      /\ AckAfterAccept =>
           \E i \in DOMAIN log[p] : LET r == log[p][i]
             IN r.type = "data" /\ r.s = me.s /\ r.q = q /\ r.e <= me.e
      /\ <<p, me.s, q>> \notin acked
      /\ acked' = acked \cup {<<p, me.s, q>>}
      /\ UNCHANGED <<coordEpoch, redis, minted, log, net, node, there, late>>

-----------------------------------------------------------------------------
(* Failures                                                                *)

\* World: the node loses its memory: a crash, or it hears that it has been fenced,
\* or it gives up for any other reason.
Crash(n) ==
  /\ node[n].pc # "idle"
  /\ node' = [node EXCEPT ![n] = Idle]
  /\ UNCHANGED <<coordEpoch, redis, minted, log, net, acked, there, late>>

\* World: Redis is emptied or rolled back.
RedisLoss ==
  /\ redis > 0
  /\ redis' \in 0..(redis - 1)
  /\ UNCHANGED <<coordEpoch, minted, log, net, node, acked, there, late>>

-----------------------------------------------------------------------------
Next ==
  \/ \E m \in net : Accept(m)
  \/ AddPartitions
  \/ \E n \in Nodes :
       \/ \E ps \in Told : \/ \E s \in Sessions, kind \in {"change", "failover"} : Arbitrate(n, s, kind, ps)
                           \/ GoOnAlone(n, ps)
       \/ OpenAndFence(n)
       \/ ReadAndCommit(n)
       \/ Publish(n)
       \/ \E p \in Parts, q \in Seqs : Forward(n, p, q) \/ Ack(n, p, q)
       \/ Crash(n)
  \/ RedisLoss

Spec == Init /\ [][Next]_vars

\* Nodes and sessions are interchangeable: nothing in the module tells one from
\* another, so TLC may look at one of each kind only.
Symmetry == Permutations(Nodes) \cup Permutations(Sessions)

-----------------------------------------------------------------------------
(* What must hold                                                          *)

Is(p, type) == {i \in DOMAIN log[p] : log[p][i].type = type}

TypeOK ==
  /\ coordEpoch \in 0..MaxEpoch
  /\ redis \in Nat
  /\ minted \subseteq Sessions
  /\ \A p \in Parts     : \A i \in DOMAIN log[p] : log[p][i].type \in {"fence", "data"}
  /\ \A i \in DOMAIN log[Changelog] : log[Changelog][i].type \in {"fence", "own"}
  /\ \A n \in Nodes : node[n].pc \in
       {"idle", "ticket", "fencing", "claiming", "serving"}

\* No record is twice in a partition.
NoDup ==
  \A p \in Parts : \A i, j \in Is(p, "data") :
    (i # j) => <<log[p][i].s, log[p][i].q>> # <<log[p][j].s, log[p][j].q>>

\* The records of one session are in the order in which it sent them.
InOrder ==
  \A p \in Parts : \A i, j \in Is(p, "data") :
    (i < j /\ log[p][i].s = log[p][j].s) => log[p][i].q <= log[p][j].q

\* Along a partition generations never go down, and one generation belongs
\* to one session; so the generations are consecutive blocks.
NoInterleave ==
  \A p \in Parts : \A i, j \in Is(p, "data") :
    (i < j) => \/ log[p][i].g < log[p][j].g
               \/ log[p][i].g = log[p][j].g /\ log[p][i].s = log[p][j].s

\* What was acked is in the log.
NoAckLost ==
  \A a \in acked : \E i \in Is(a[1], "data") :
    log[a[1]][i].s = a[2] /\ log[a[1]][i].q = a[3]

\* Generations rise along the changelog; one belongs to one session.
GenerationUnique ==
  \A i, j \in Is(Changelog, "own") :
    (i < j) => LET a == log[Changelog][i]
                   b == log[Changelog][j]
               IN  a.g < b.g \/ (a.g = b.g /\ a.s = b.s)

\* Once a claim is in the changelog nothing of earlier owners gets in anywhere.
NobodyLate == ~late

\* Behind a marker nothing of an older epoch is appended.
OldOwnerSilent ==
  \A p \in Parts : \A i \in Is(p, "fence") : \A j \in DOMAIN log[p] :
    (i < j) => log[p][i].e <= log[p][j].e

\* A session that lost the ownership never gets it back.
NoComeBack ==
  LET c == log[Changelog]
  IN  \A i, j, k \in Is(Changelog, "own") :
        (i < j /\ j < k /\ c[i].s = c[k].s) => c[j].s = c[i].s

\* Every record was written by the session, and in the generation, that the
\* changelog names as owner at the epoch of the record.
OwnerOnly ==
  LET c == log[Changelog]
  IN  \A p \in Parts : \A i \in Is(p, "data") :
        LET r  == log[p][i]
            at == {k \in Is(Changelog, "own") : c[k].e <= r.e}
        IN  at # {} /\ c[Max(at)].s = r.s /\ c[Max(at)].g = r.g

\* From the fence of an ownership change on, sessions that were owners before
\* write nothing more.  (An ack of theirs can only be for a record in front
\* of the fence: NoAckLost.)
OldSessionSilent ==
  LET c == log[Changelog]
  IN  \A k \in Is(Changelog, "own") : \A p \in Parts :
        \A i \in Is(p, "fence") : \A j \in Is(p, "data") :
          (log[p][i].e = c[k].e /\ i < j) =>
            \A b \in Is(Changelog, "own") :
              (b < k /\ c[b].s # c[k].s) => log[p][j].s # c[b].s

-----------------------------------------------------------------------------
\* Not an invariant (sanity.cfg): one session writes, another one takes over,
\* fails over to a new epoch and writes, and both records are acked.
NeverDone ==
  ~ \E p \in Parts : \E i, j \in Is(p, "data"), k \in Is(Changelog, "own") :
      /\ i < j
      /\ log[p][i].s # log[p][j].s
      /\ log[Changelog][k].s = log[p][j].s /\ log[Changelog][k].e < log[p][j].e
      /\ \A x \in {i, j} : <<p, log[p][x].s, log[p][x].q>> \in acked
=============================================================================
