--------------------------- MODULE ClientSequences ---------------------------
(***************************************************************************)
(* What ExclusiveTopic.tla leaves out: ONE client session that stays the   *)
(* owner of ONE topic, while the serving node changes (failover) and the   *)
(* client raises its own epoch, partition by partition.  Are the sequence  *)
(* numbers that the nodes put on its batches right?                        *)
(*                                                                         *)
(*   ce, c   client epoch and client sequence, as the client stamps them   *)
(*   e, s    the slot's epoch and the sequence that the node stamps        *)
(*           instead: s = c - base, base constant per (e, partition)       *)
(*                                                                         *)
(* A node takes over (sidecar/takeover/takeover.py):                       *)
(*   Begin     InitProducerId gives e; markers leave for every data        *)
(*             partition and for the changelog                             *)
(*   ReadLast  all markers are in: read the last Serving record            *)
(*   Claim     read the tails, compute the bases, send a Serving record    *)
(*   Serve     the changelog has taken the Serving record                  *)
(* A client epoch that rises on one partition makes the serving node do    *)
(* the same again (RaiseMode "takeover"; the other modes are shortcuts).   *)
(* On topics with sequence ids (Dups) a node acknowledges records without  *)
(* writing them; the base then shifts by a SequenceBase record under the   *)
(* same e (Drop).                                                          *)
(*                                                                         *)
(* How the world appears in the model:                                     *)
(*   - client requests: whatever the client has sent may reach any node,   *)
(*     at any later time, in any order, any number of times, or never.     *)
(*     That covers pipelining, stale metadata, broken connections and all  *)
(*     resending, so requests need no variable.  A client sends as far as  *)
(*     its window allows.                                                  *)
(*   - refusals (6, 7, 45) change nothing in that picture: not modelled.   *)
(*   - acks: of anything that a log holds, at any later time, by whatever  *)
(*     node; or of what a node (or the broker) takes for a repeat.  As in  *)
(*     librdkafka an ack of c counts for everything unacked before c too.  *)
(*   - giving up: the client drops its lowest unacked record, raises its   *)
(*     epoch for this partition, numbers the rest from 0.  It may also     *)
(*     raise the epoch without dropping anything (Java does when another   *)
(*     partition of it has done so).                                       *)
(*   - paused or crashed node: it takes no step.  Restarted node, or one   *)
(*     that heard a 47: Begin, which forgets everything it knew.           *)
(*   - messages of nodes stay under way as long as they like.              *)
(*   - the changelog is compacted: only the last Serving record is left.   *)
(*                                                                         *)
(* One record = one batch.  Taken for granted: as in ExclusiveTopic.tla;   *)
(* client epochs and sequences do not wrap (SequenceSpace.tla), and client  *)
(* epochs start at 0 on every partition.  With a client that is not careful*)
(* a record can be twice in the log under two client epochs, as on plain   *)
(* Kafka; then only <<ce, c>> is what must not be there twice.             *)
(* Only safety is checked, and that nobody is refused for ever (NotStuck). *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
  Nodes, Parts,
  MaxRec,         \* the client has records 0..MaxRec-1 for each partition
  Window,         \* at most so many unacked per partition
  MaxCep,         \* bound: client epoch of a partition
  MaxEpoch,       \* bound: epochs that the coordinator hands out
  CarefulClient,  \* TRUE: raises its epoch only when it knows that its later
                  \* records are not in the log and never will be
  Dups,           \* records whose id the log knows already (topics with ids):
                  \* acknowledged, not written
  Interlude,      \* TRUE: another session may own the topic for a while
  RaiseMode       \* "takeover": a raise goes through Begin, Claim, Serve;
                  \* "checked":  InitProducerId names the node's own epoch and
                  \*             fails if it is not the newest; bases from
                  \*             memory, no markers, no reading
                  \* "memory":   the same with a plain InitProducerId

\* Switches.  TRUE is the protocol; FALSE is a mistake that TLC must catch.
CONSTANTS
  BaseFromLog,     \* bases are not taken from the first batch that arrives
  TailAfterFence,  \* tails are read behind the markers
  LastAfterFence,  \* so is the changelog
  FenceData,       \* markers on the data partitions
  FenceChangelog,  \* marker on the changelog
  StampChangelog,  \* Serving records are stamped, so a stale one is refused
  NewEpochOnRaise, \* a raised client epoch gets a new e, not a new base only
  AwaitInflight,   \* what is in flight is answered first ("checked": needed;
                   \* "takeover": the markers decide, so it is courtesy)
  KnowRepeats,     \* c < base is not forwarded as something new
  NotTooHigh,      \* base is not one too high
  NotTooLow,       \* base is not one too low
  RaiseOnlyUp,     \* a lower client epoch is refused, not taken for a raise
  RaiseOnce,       \* base 0 only if the changelog does not know this ce yet
  CepPerPartition, \* Serving holds the client epoch of every partition
  DropWaits,       \* a drop waits until all before it is in the log
  ShiftFirst,      \* a drop is acknowledged after its SequenceBase record is in
                   \* the changelog (FALSE: only the next batch waits for it)
  KeepLeft         \* Serving of another owner keeps where this one stood

VARIABLES
  coord,   \* coordinator: the last epoch that it handed out
  log,     \* log[p]: data in partition p, in order
  high,    \* high[p]: the highest epoch that p (or the changelog) has seen
  last,    \* the last Serving record in the changelog
  taken,   \* epochs whose Serving record the changelog took
  marks,   \* under way: markers <<p, e>>
  data,    \* under way: data
  claims,  \* under way: Serving records
  shifts,  \* under way: SequenceBase records
  node,    \* memory of the nodes
  client   \* client[p]

vars == <<coord, log, high, last, taken, marks, data, claims, shifts, node, client>>

-----------------------------------------------------------------------------
Changelog == "changelog"
AllParts  == Parts \cup {Changelog}
Zero      == [p \in Parts |-> 0]
Unset     == -1000
Min(a, b) == IF a < b THEN a ELSE b
Max(S)    == CHOOSE x \in S : \A y \in S : y <= x

\* sb[p]: from stamped sequence `from` on the base is `base`.
Serving(e, w, base, cep) ==
  [e |-> e, who |-> w, base |-> base, cep |-> cep,
   sb |-> [p \in Parts |-> [from |-> 0, base |-> base[p]]]]
Data(p, e, s, ce, c)  == [p |-> p, e |-> e, s |-> s, ce |-> ce, c |-> c]

None   == Serving(0, "session", Zero, Zero)
NoWant == [p |-> "none", ce |-> 0]
Idle   == [pc |-> "idle", e |-> 0, who |-> "session", base |-> Zero, cep |-> Zero,
           want |-> NoWant, sv |-> None, seen |-> Zero]

\* The client: low = first record neither delivered nor given up,
\* offs[ce + 1] = record that has sequence 0 in client epoch ce,
\* old[ce + 1] = how many sequences of an earlier client epoch were sent.
Cep(p)      == Len(client[p].offs) - 1
Off(p)      == client[p].offs[Cep(p) + 1]
SentNow(p)  == Min(MaxRec, client[p].low + Window) - Off(p)
Sent(p, ce) == IF ce = Cep(p) THEN SentNow(p) ELSE client[p].old[ce + 1]
Rec(p, ce, c) == client[p].offs[ce + 1] + c

\* The last stamped sequence that partition p knows for its highest epoch.
LastS(p) == LET n == Len(log[p])
            IN  IF n > 0 /\ log[p][n].e = high[p] THEN log[p][n].s ELSE -1

\* The session's next sequence, from the first n entries of p and a Serving
\* record: behind its last data under that e; none: the base itself.
NextSeq(p, sv, n) ==
  LET at == {i \in 1..n : log[p][i].e = sv.e}
      s1 == IF at = {} THEN 0 ELSE log[p][Max(at)].s + 1
  IN  s1 + (IF sv.sb[p].from <= s1 THEN sv.sb[p].base ELSE sv.base[p])

-----------------------------------------------------------------------------
Init ==
  /\ coord = 0
  /\ log = [p \in Parts |-> <<>>]
  /\ high = [p \in AllParts |-> 0]
  /\ last = None
  /\ taken = {}
  /\ marks = {} /\ data = {} /\ claims = {} /\ shifts = {}
  /\ node = [n \in Nodes |-> Idle]
  /\ client = [p \in Parts |-> [low |-> 0, offs |-> <<0>>, old |-> <<>>, gone |-> {}]]

-----------------------------------------------------------------------------
(* Kafka.  What can never be accepted any more is dropped at once.         *)

\* Kafka: a partition knows a later epoch.
Raise(p, e) ==
  /\ high' = [high EXCEPT ![p] = e]
  /\ marks' = {m \in marks : ~(m[1] = p /\ m[2] <= e)}

\* Kafka: a marker is appended.
AcceptMark(m) ==
  /\ m[2] >= high[m[1]]
  /\ Raise(m[1], m[2])
  /\ data' = {x \in data : ~(x.p = m[1] /\ x.e < m[2])}
  /\ claims' = IF m[1] = Changelog /\ StampChangelog
                 THEN {x \in claims : x.e >= m[2]} ELSE claims
  /\ shifts' = IF m[1] = Changelog THEN {x \in shifts : x.e >= m[2]} ELSE shifts
  /\ UNCHANGED <<coord, log, last, taken, node, client>>

\* Kafka: a partition that never heard of the producer takes any first sequence.
AcceptData(m) ==
  /\ \/ m.e = high[m.p] /\ m.s = LastS(m.p) + 1
     \/ m.e > high[m.p] /\ (m.s = 0 \/ high[m.p] = 0)
  /\ log' = [log EXCEPT ![m.p] = Append(@, [e |-> m.e, s |-> m.s, ce |-> m.ce, c |-> m.c])]
  /\ Raise(m.p, m.e)
  /\ data' = {x \in data : ~(x.p = m.p /\ (x.e < m.e \/ (x.e = m.e /\ x.s <= m.s)))}
  /\ UNCHANGED <<coord, last, taken, claims, shifts, node, client>>

\* Kafka: the changelog takes a Serving record.
AcceptClaim(m) ==
  /\ StampChangelog => m.e >= high[Changelog]
  /\ last' = m
  /\ taken' = taken \cup {m.e}
  /\ Raise(Changelog, Max({m.e, high[Changelog]}))
  /\ claims' = {x \in claims \ {m} : StampChangelog => x.e >= m.e}
  /\ shifts' = {x \in shifts : x.e >= m.e}
  /\ UNCHANGED <<coord, log, data, node, client>>

\* Kafka: the changelog takes a SequenceBase record.
AcceptShift(m) ==
  /\ m.e = high[Changelog] /\ m.e = last.e
  /\ shifts' = shifts \ {m}
  /\ last' = [last EXCEPT !.sb[m.p] = [from |-> m.from, base |-> m.base]]
  /\ UNCHANGED <<coord, log, high, taken, marks, data, claims, node, client>>

-----------------------------------------------------------------------------
(* Takeover                                                                *)

FenceSet == (IF FenceData      THEN Parts       ELSE {})
       \cup (IF FenceChangelog THEN {Changelog} ELSE {})

\* InitProducerId; the markers are on their way.
\* sidecar/fencing/topic.py: open_slots
Start(n, w, want) ==
  /\ coord < MaxEpoch                                    \* bound of the model
  /\ coord' = coord + 1
  /\ marks' = marks \cup {<<p, coord + 1>> : p \in FenceSet}
  /\ node' = [node EXCEPT ![n] = [Idle EXCEPT
       !.pc = "fencing", !.e = coord + 1, !.who = w, !.want = want,
       !.sv = IF LastAfterFence THEN None ELSE last,
       !.seen = IF TailAfterFence THEN Zero ELSE [p \in Parts |-> Len(log[p])]]]
  /\ UNCHANGED <<log, high, last, taken, data, claims, shifts, client>>

\* sidecar/exclusive/topic.py: GovernedTopic._resume
Begin(n) == \E w \in {"session"} \cup (IF Interlude THEN {"other"} ELSE {}) :
              Start(n, w, NoWant)

\* All markers are in: read the changelog.
\* sidecar/takeover/slots.py: SlotRecords.known
ReadLast(n) ==
  /\ node[n].pc = "fencing"
  /\ \A p \in FenceSet : high[p] >= node[n].e
  /\ node' = [node EXCEPT ![n].pc = "reading",
       ![n].sv = IF LastAfterFence THEN last ELSE @]
  /\ UNCHANGED <<coord, log, high, last, taken, marks, data, claims, shifts, client>>

\* The bases that follow a Serving record: the next sequence; 0 for the
\* partition whose client epoch rose.
NewCep(sv, want) ==
  [p \in Parts |-> IF p = want.p /\ (want.ce > sv.cep[p] \/ ~RaiseOnlyUp)
                     THEN want.ce ELSE sv.cep[p]]
InServing(cep) ==
  IF CepPerPartition THEN cep ELSE [p \in Parts |-> Max({cep[q] : q \in Parts})]
NewBase(sv, want, next) ==
  [p \in Parts |-> IF p = want.p /\ (want.ce > sv.cep[p] \/ ~RaiseOnlyUp \/ ~RaiseOnce)
                     THEN 0
                     ELSE next[p] + (IF NotTooHigh THEN 0 ELSE 1) - (IF NotTooLow THEN 0 ELSE 1)]

\* Read the tails, send the Serving record.  (Another session writes nothing
\* in this model: only its Serving record matters.)
\* sidecar/takeover/takeover.py: Takeover._sequences
Claim(n) ==
  LET me   == node[n]
      sv   == IF me.sv.who = "other" /\ ~KeepLeft THEN None ELSE me.sv
      next == [p \in Parts |->
                 NextSeq(p, sv, IF TailAfterFence THEN Len(log[p]) ELSE me.seen[p])]
      cep  == NewCep(sv, me.want)
      base == IF BaseFromLog THEN NewBase(sv, me.want, next)
                             ELSE [p \in Parts |-> Unset]
  IN  /\ me.pc = "reading"
      /\ claims' = claims \cup {Serving(me.e, me.who, base, InServing(cep))}
      /\ node' = [node EXCEPT ![n] = [Idle EXCEPT
           !.pc = "claiming", !.e = me.e, !.who = me.who, !.base = base, !.cep = cep]]
      /\ UNCHANGED <<coord, log, high, last, taken, marks, data, shifts, client>>

\* The record is in the changelog.
\* sidecar/takeover/takeover.py: Takeover._append
Serve(n) ==
  /\ node[n].pc = "claiming" /\ node[n].who = "session"
  /\ node[n].e \in taken
  /\ node' = [node EXCEPT ![n].pc = "serving"]
  /\ UNCHANGED <<coord, log, high, last, taken, marks, data, claims, shifts, client>>

-----------------------------------------------------------------------------
(* Serving                                                                 *)

\* What the node knows to be in the log under its epoch.
At(n, p) == IF high[p] = node[n].e THEN LastS(p) + 1 ELSE 0

\* The record with the session's next sequence has an id that the log knows.
\* The base rises by one; from then on c is a repeat (AckRepeat).
\* sidecar/writing/epoch.py: SlotEpoch.shift
Drop(n, p, c) ==
  LET me   == node[n]
      mine == {x.c : x \in {y \in data : y.p = p /\ y.e = me.e}}
      next == Max(mine \cup {At(n, p) + me.base[p] - 1}) + 1
      m    == [e |-> me.e, p |-> p, from |-> next - me.base[p], base |-> me.base[p] + 1]
      in   == last.e = me.e /\ last.sb[p] = [from |-> m.from, base |-> m.base]
  IN  /\ me.pc = "serving" /\ high[p] <= me.e
      /\ me.cep[p] <= Cep(p) /\ c < Sent(p, me.cep[p])
      /\ c = next /\ Rec(p, me.cep[p], c) \in Dups
      /\ DropWaits => mine = {}
      /\ IF ShiftFirst
           THEN IF in
             THEN node' = [node EXCEPT ![n].base[p] = @ + 1] /\ UNCHANGED shifts
             ELSE m \notin shifts /\ shifts' = shifts \cup {m} /\ UNCHANGED node
           ELSE /\ node' = [node EXCEPT ![n].base[p] = @ + 1]
                /\ shifts' = shifts \cup {m}
      /\ UNCHANGED <<coord, log, high, last, taken, marks, data, claims, client>>

\* A batch of the node's client epoch, not below its base.
\* sidecar/writing/epoch.py: SlotEpoch.append
Forward(n, p, c) ==
  LET me   == node[n]
      base == IF me.base[p] = Unset THEN c ELSE me.base[p]
      s    == IF c < base THEN LastS(p) + 1 ELSE c - base
      m    == Data(p, me.e, s, me.cep[p], c)
  IN  /\ me.pc = "serving"
      /\ me.cep[p] <= Cep(p) /\ c < Sent(p, me.cep[p])
      /\ c < base => ~KnowRepeats
      /\ high[p] <= me.e                     \* else: 47, nothing changes
      /\ high[p] = me.e => s > LastS(p)      \* else: a repeat, see AckRepeat
      /\ \A d \in 0..c : (Rec(p, me.cep[p], d) \in Dups) => d < At(n, p) + base
      /\ ~ \E x \in shifts : x.p = p /\ x.e = me.e
      /\ m \notin data
      /\ data' = data \cup {m}
      /\ node' = [node EXCEPT ![n].base[p] = base]
      /\ UNCHANGED <<coord, log, high, last, taken, marks, claims, shifts, client>>

\* A batch of another client epoch: a raise, by what RaiseMode says.  As built:
\* "checked" where every outcome is known, else "takeover".
\* sidecar/exclusive/writer.py: SlotWriter.raise_epoch
NewClientEpoch(n, p, ce) ==
  LET me   == node[n]
      want == [p |-> p, ce |-> ce]
      mine == Serving(me.e, "session", me.base, me.cep)
      next == [q \in Parts |-> NextSeq(q, mine, Len(log[q]))]
      sv   == Serving(coord + 1, "session", NewBase(mine, want, next), NewCep(mine, want))
  IN  /\ me.pc = "serving"
      /\ ce \in 0..Cep(p) /\ Sent(p, ce) > 0
      /\ IF RaiseOnlyUp THEN ce > me.cep[p] ELSE ce # me.cep[p]
      /\ IF ~NewEpochOnRaise
           THEN /\ ~ \E x \in data : x.e = me.e
                /\ node' = [node EXCEPT ![n].cep[p] = ce, ![n].base[p] = -(LastS(p) + 1)]
                /\ UNCHANGED <<coord, log, high, last, taken, marks, data, claims, shifts, client>>
         ELSE IF RaiseMode = "takeover"
           THEN Start(n, "session", want)
           ELSE /\ coord < MaxEpoch
                /\ AwaitInflight => ~ \E x \in data : x.e = me.e
                /\ RaiseMode = "checked" => coord = me.e
                /\ coord' = coord + 1
                /\ claims' = claims \cup {sv}
                /\ node' = [node EXCEPT ![n] = [Idle EXCEPT
                     !.pc = "claiming", !.e = sv.e, !.base = sv.base, !.cep = sv.cep]]
                /\ UNCHANGED <<log, high, last, taken, marks, data, shifts, client>>

-----------------------------------------------------------------------------
(* The client                                                              *)

\* Client: counts a record as delivered, and all in front of it.
Delivered(p, c) ==
  /\ c < SentNow(p)
  /\ Off(p) + c >= client[p].low
  /\ client' = [client EXCEPT ![p].low = Off(p) + c + 1]
  /\ UNCHANGED <<coord, log, high, last, taken, marks, data, claims, shifts, node>>

\* Client: the answer to a batch that was accepted.
Ack(p, i) == log[p][i].ce = Cep(p) /\ Delivered(p, log[p][i].c)

\* The node takes c for a repeat (46), or the broker does.
\* sidecar/writing/epoch.py: SlotEpoch.verdict
AckRepeat(n, p, c) ==
  LET me == node[n]
  IN  /\ me.pc = "serving"
      /\ me.cep[p] = Cep(p)
      /\ me.base[p] # Unset
      /\ \/ KnowRepeats /\ c < me.base[p]
         \/ c >= me.base[p] /\ high[p] = me.e /\ c - me.base[p] <= LastS(p)
      /\ Delivered(p, c)

\* Client: raises its epoch for p; it has given up g = 0 or 1 records.
RaiseEpoch(p, g) ==
  LET me   == client[p]
      keep == me.low + g - Off(p)
  IN  /\ Cep(p) < MaxCep                                 \* bound of the model
      /\ me.low < MaxRec
      /\ (CarefulClient \/ g = 0) =>
            /\ ~ \E i \in DOMAIN log[p] : log[p][i].ce = Cep(p) /\ log[p][i].c >= keep
            /\ ~ \E x \in data : x.p = p /\ x.ce = Cep(p) /\ x.c >= keep
      /\ client' = [client EXCEPT ![p] =
           [low  |-> me.low + g,
            offs |-> Append(me.offs, me.low + g),
            old  |-> Append(me.old, IF CarefulClient \/ g = 0 THEN keep ELSE SentNow(p)),
            gone |-> me.gone \cup (IF g = 1 THEN {me.low} ELSE {})]]
      /\ UNCHANGED <<coord, log, high, last, taken, marks, data, claims, shifts, node>>

-----------------------------------------------------------------------------
Next ==
  \/ \E m \in marks  : AcceptMark(m)
  \/ \E m \in data   : AcceptData(m)
  \/ \E m \in claims : AcceptClaim(m)
  \/ \E m \in shifts : AcceptShift(m)
  \/ \E n \in Nodes :
       \/ Begin(n)
       \/ ReadLast(n)
       \/ Claim(n)
       \/ Serve(n)
       \/ \E p \in Parts, c \in 0..(MaxRec - 1) : Forward(n, p, c) \/ AckRepeat(n, p, c)
                                                  \/ Drop(n, p, c)
       \/ \E p \in Parts, ce \in 0..MaxCep : NewClientEpoch(n, p, ce)
  \/ \E p \in Parts :
       \/ \E i \in DOMAIN log[p] : Ack(p, i)
       \/ \E g \in {0, 1} : RaiseEpoch(p, g)

Spec == Init /\ [][Next]_vars

Symmetry == Permutations(Nodes) \cup Permutations(Parts)

-----------------------------------------------------------------------------
(* What must hold                                                          *)

TypeOK ==
  /\ coord \in 0..MaxEpoch
  /\ taken \subseteq 1..MaxEpoch
  /\ \A p \in Parts : client[p].low \in 0..MaxRec
  /\ \A n \in Nodes : node[n].pc \in {"idle", "fencing", "reading", "claiming", "serving"}

\* Nothing that the client stamped is twice in a partition.
NoDup ==
  \A p \in Parts : \A i, j \in DOMAIN log[p] :
    (i # j) => <<log[p][i].ce, log[p][i].c>> # <<log[p][j].ce, log[p][j].c>>

\* The log has the client's order: by client epoch, then by sequence.
InOrder ==
  \A p \in Parts : \A i, j \in DOMAIN log[p] :
    (i < j) => \/ log[p][i].ce < log[p][j].ce
               \/ log[p][i].ce = log[p][j].ce /\ log[p][i].c <= log[p][j].c

\* Within a client epoch nothing is missing in front of a record.
NoHole ==
  \A p \in Parts : \A j \in DOMAIN log[p] : \A c \in 0..(log[p][j].c - 1) :
    Rec(p, log[p][j].ce, c) \notin Dups =>
    \E i \in 1..(j - 1) : log[p][i].ce = log[p][j].ce /\ log[p][i].c = c

RecAt(p, i) == Rec(p, log[p][i].ce, log[p][i].c)

\* What the client counts as delivered is in the log.
NoAckLost ==
  \A p \in Parts : \A r \in 0..(client[p].low - 1) :
    r \notin client[p].gone \cup Dups => \E i \in DOMAIN log[p] : RecAt(p, i) = r

\* With a careful client the same holds for its records, over all its epochs:
\* none twice, in order, no hole except where it gave up.
Records ==
  CarefulClient => \A p \in Parts : \A j \in DOMAIN log[p] :
    /\ \A i \in 1..(j - 1) : RecAt(p, i) < RecAt(p, j)
    /\ \A r \in 0..(RecAt(p, j) - 1) :
         r \notin client[p].gone \cup Dups => \E i \in 1..(j - 1) : RecAt(p, i) = r

\* A record whose id the log knows is not written again.
NoDupId == \A p \in Parts : \A i \in DOMAIN log[p] : RecAt(p, i) \notin Dups

\* The newest server takes the record that the client needs next: nothing
\* is refused for ever.
NotStuck ==
  \A n \in Nodes, p \in Parts :
    LET me == node[n]
        at == IF high[p] = me.e THEN LastS(p) + 1 ELSE 0
    IN  me.pc = "serving" /\ me.e = coord =>
          \/ me.cep[p] < Cep(p)                                  \* a raise
          \/ /\ me.cep[p] = Cep(p)
             /\ me.base[p] = Unset \/ client[p].low - Off(p) - me.base[p] <= at

-----------------------------------------------------------------------------
\* Not invariants: TLC must find states that break them (sanity*.cfg).

\* Everything is delivered, part of it after a failover.
NeverDone ==
  ~ /\ \A p \in Parts : client[p].low = MaxRec /\ client[p].gone = {} /\ Cep(p) = 0
    /\ \A p \in Parts : \E i, j \in DOMAIN log[p] : log[p][i].e < log[p][j].e

\* One partition gave up a record and went on at its next client epoch, the
\* other one was written before and after that under its old client epoch;
\* everything else is delivered.
NeverRaised ==
  ~ \E p, q \in Parts :
      /\ p # q
      /\ client[p].gone # {} /\ client[p].low = MaxRec
      /\ \E i, j \in DOMAIN log[p] : log[p][i].ce < log[p][j].ce
      /\ Cep(q) = 0 /\ client[q].low = MaxRec
      /\ \E i, j \in DOMAIN log[q] : log[q][i].e < log[q][j].e
=============================================================================
