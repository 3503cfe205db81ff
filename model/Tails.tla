------------------------------- MODULE Tails -------------------------------
(***************************************************************************)
(* Where did the last owner stop?  One data partition whose leader changes,*)
(* one writer slot, nodes that take it over one after the other.           *)
(*                                                                         *)
(* What a leader holds above its high watermark is not committed: a clean  *)
(* election may drop it.  So a node notes two things before it opens the   *)
(* next epoch: a hint (an offset in front of which all is committed and    *)
(* known) and a claim (what a leader remembers, and in which leader epoch  *)
(* it was asked).  Behind its own marker it believes the claim only if the *)
(* marker was appended in the same leader epoch; else it reads the log from*)
(* the hint.                                                               *)
(*                                                                         *)
(* How the world appears in the model:                                     *)
(*   - batches of every epoch that was ever served may reach a leader at   *)
(*     any time, as often as they like, or never: no variable for them.    *)
(*   - a leader that was cut off goes on answering and appending (`old`);  *)
(*     nothing of that is ever committed.                                  *)
(*   - a broker that leads no more may answer from what it has replicated. *)
(*   - Dead: a node forgets everything; what it wrote down stays.          *)
(*   - Retain: retention takes the oldest records (Retention).             *)
(* Taken for granted: elections are clean (only what is in the in-sync     *)
(* replicas leads); markers are written with acks=all.                     *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
  MaxBatch,    \* stamped sequences 0..MaxBatch-1 under each epoch
  MaxLeader,   \* bound: leader epochs
  MaxEpoch,    \* bound: epochs of the slot; 1 is served when it begins
  MaxLog,      \* bound: length of a log
  Retention,   \* TRUE: old records may go
  OwnerNotes   \* TRUE: the owner notes its place at keep-alives

\* Switches.  TRUE is the protocol; FALSE is a mistake that TLC must catch.
CONSTANTS
  JudgeClaim,  \* a claim counts only in the leader epoch of the marker
  EpochFirst,  \* the leader epoch is asked before what is remembered
  EndFirst,    \* the high watermark is asked before what is remembered
  KeepHint,    \* a claim does not take the place of the hint
  WholeOnly    \* nothing counts where retention took what lies behind it

VARIABLES
  log,      \* the leader's log; entries [e, s, l]: slot epoch, stamped sequence
            \* (-1 for a marker), leader epoch
  hw,       \* so many entries are committed
  le,       \* the leader epoch
  old,      \* a leader that was cut off: its log, leader epoch, high watermark
  first,    \* entries that retention took
  coord,    \* the last epoch that the coordinator handed out
  serving,  \* the newest Serving record: [e, begins]
  served,   \* epochs under which somebody served
  tail,     \* the newest Tail record
  node      \* the node that takes over

vars == <<log, hw, le, old, first, coord, serving, served, tail, node>>

-----------------------------------------------------------------------------
Marker  == -1
Nothing == -1
Unknown == -2
Max(S)  == CHOOSE x \in S : \A y \in S : y <= x
Min(S)  == CHOOSE x \in S : \A y \in S : x <= y

NoClaim == [last |-> Nothing, off |-> 0, l |-> 0]
NoOld   == [log |-> <<>>, l |-> 0, hw |-> 0]
Place(e, last, off, claim) == [e |-> e, last |-> last, off |-> off, claim |-> claim]
Idle    == [pc |-> "idle", e |-> 0, of |-> 0, off |-> 0, l |-> 0, last |-> Nothing,
            newer |-> FALSE, clean |-> FALSE, tail |-> Place(0, Nothing, 0, NoClaim), found |-> Nothing]

High(g)    == Max({g[i].e : i \in DOMAIN g} \cup {0})
Datas(g, e) == {i \in DOMAIN g : g[i].e = e /\ g[i].s # Marker}
LastS(g, e) == IF Datas(g, e) = {} THEN Nothing ELSE g[Max(Datas(g, e))].s

\* What a broker with this log remembers of the writer: its last sequence under
\* epoch e, nothing where it knows a marker only, or a later epoch.
Remembered(g, e) == IF High(g) = e THEN LastS(g, e) ELSE Nothing

Init ==
  /\ log = <<>> /\ hw = 0 /\ le = 1 /\ old = NoOld /\ first = 0
  /\ coord = 1
  /\ serving = [e |-> 1, begins |-> 0]
  /\ served = {1}
  /\ tail = Place(0, Nothing, 0, NoClaim)
  /\ node = Idle

-----------------------------------------------------------------------------
(* Kafka                                                                   *)

Takes(g, e, s) ==
  IF s = Marker THEN e >= High(g)
  ELSE \/ e > High(g) /\ s = 0
       \/ e = High(g) /\ s = LastS(g, e) + 1

\* Kafka: a leader takes a batch of the slot.
Append1(e, s) ==
  /\ Len(log) < MaxLog
  /\ Takes(log, e, s)
  /\ log' = Append(log, [e |-> e, s |-> s, l |-> le])
  /\ UNCHANGED <<hw, le, old, first, coord, serving, served, tail, node>>

\* Kafka: so does one that was cut off and does not know it yet.
AppendOld(e, s) ==
  /\ old # NoOld /\ Len(old.log) < MaxLog
  /\ Takes(old.log, e, s)
  /\ old' = [old EXCEPT !.log = Append(@, [e |-> e, s |-> s, l |-> old.l])]
  /\ UNCHANGED <<log, hw, le, first, coord, serving, served, tail, node>>

\* Kafka: the coordinator writes the marker of the node's epoch, again where an
\* election dropped it.
WriteMarker ==
  /\ node.pc = "fencing"
  /\ ~ \E i \in DOMAIN log : log[i].e = node.e
  /\ Append1(node.e, Marker)

\* Kafka: all in-sync replicas have the next entry.
Replicate ==
  /\ hw < Len(log)
  /\ hw' = hw + 1
  /\ UNCHANGED <<log, le, old, first, coord, serving, served, tail, node>>

\* Kafka: a clean election; of what is not committed any part may be dropped.
Elect(k) ==
  /\ le < MaxLeader
  /\ k \in hw..Len(log)
  /\ log' = SubSeq(log, 1, k)
  /\ le' = le + 1
  /\ old' = [log |-> log, l |-> le, hw |-> hw]
  /\ UNCHANGED <<hw, first, coord, serving, served, tail, node>>

\* Kafka: retention.
Retain ==
  /\ Retention /\ first < hw
  /\ first' = first + 1
  /\ UNCHANGED <<log, hw, le, old, coord, serving, served, tail, node>>

-----------------------------------------------------------------------------
(* Before the fence                                                        *)

\* What a broker may remember that was asked for its leader epoch l before: it
\* leads still, or was cut off, or follows and has replicated what the leader has.
Sources(l) == {log} \cup (IF old.l = l THEN {old.log} ELSE {})

\* The high watermark and leader epoch of a broker that takes itself for the
\* leader.  (EndFirst = FALSE: what it remembers instead.)
\* sidecar/takeover/tails.py: TailReader.look
LookEnds ==
  /\ node.pc = "idle" /\ coord < MaxEpoch
  /\ \E b \in {[hw |-> hw, l |-> le, log |-> log]}
            \cup (IF old = NoOld THEN {} ELSE {[hw |-> old.hw, l |-> old.l, log |-> old.log]}) :
       node' = [Idle EXCEPT !.pc = "looking", !.of = serving.e, !.l = b.l,
                  !.off = IF EndFirst THEN b.hw ELSE 0,
                  !.last = IF EndFirst THEN Nothing ELSE Remembered(b.log, serving.e)]
  /\ UNCHANGED <<log, hw, le, old, first, coord, serving, served, tail>>

\* A moment later: what the same broker remembers.
\* sidecar/takeover/tails.py: TailReader.look
LookProducers ==
  /\ node.pc = "looking"
  /\ \E g \in Sources(node.l), trusted \in BOOLEAN :
       node' = [node EXCEPT !.pc = "looked",
                  !.last = IF EndFirst THEN Remembered(g, node.of) ELSE @,
                  !.newer = High(g) > node.of, !.clean = EndFirst /\ trusted,
                  !.off = IF EndFirst THEN @ ELSE hw,
                  !.l = IF EpochFirst THEN @ ELSE le]
  /\ UNCHANGED <<log, hw, le, old, first, coord, serving, served, tail>>

\* What is written down: the hint that there is, with the newest claim.  Where a
\* leader remembers nothing, and surely forgot nothing (`clean`; it cannot be told
\* always), what is in front of its high watermark need not be read.
Noted(n) ==
  LET known == IF tail.e = n.of THEN tail
               ELSE Place(n.of, Nothing,
                         IF tail.e < n.of THEN Max({serving.begins, tail.off}) ELSE serving.begins, NoClaim)
      sure  == n.last = Nothing /\ ~n.newer /\ n.clean       \* trusted_ends
      since == IF sure THEN Max({known.off, n.off}) ELSE known.off
      claim == [last |-> n.last, off |-> n.off, l |-> n.l]
  IN  IF sure /\ known.last = Nothing /\ known.claim = NoClaim THEN [known EXCEPT !.off = since]
      ELSE IF n.last = Nothing \/ known.claim.l > n.l THEN known
      ELSE IF KeepHint THEN [known EXCEPT !.claim = claim]
      ELSE [known EXCEPT !.claim = claim, !.off = claim.off]

\* sidecar/takeover/takeover.py: Takeover._note_tails
NoteTails ==
  /\ node.pc = "looked"
  /\ node' = [node EXCEPT !.pc = "noted", !.tail = Noted(node)]
  /\ tail' = Noted(node)
  /\ UNCHANGED <<log, hw, le, old, first, coord, serving, served>>

\* InitProducerId, and the fence is on its way (WriteMarker).
\* sidecar/fencing/slot.py: WriterSlot.open
OpenSlot ==
  /\ node.pc = "noted" /\ coord < MaxEpoch
  /\ coord' = coord + 1
  /\ node' = [node EXCEPT !.pc = "fencing", !.e = coord + 1]
  /\ UNCHANGED <<log, hw, le, old, first, serving, served, tail>>

-----------------------------------------------------------------------------
(* Behind the fence                                                        *)

\* The log from an offset to the marker that fences epoch e: nothing of it lies
\* behind any entry of a later epoch.
Stops(o, e)  == {i \in (Max({o, first}) + 1)..hw : log[i].e > e}
Stretch(o, e) ==
  LET stop == Min(Stops(o, e))
      at   == {i \in Datas(log, e) : i > Max({o, first}) /\ i < stop}
  IN  [last |-> IF at = {} THEN Nothing ELSE log[Max(at)].s, l |-> log[stop].l,
       whole |-> first <= o]

FromHint(t, e) ==
  LET r == Stretch(t.off, e)
  IN  IF r.last # Nothing THEN r.last
      ELSE IF r.whole \/ ~WholeOnly THEN t.last ELSE Unknown

Behind(t, e) ==
  IF t.claim = NoClaim THEN FromHint(t, e)
  ELSE LET r == Stretch(t.claim.off, e)
       IN  IF r.last # Nothing THEN r.last
           ELSE IF r.l = t.claim.l \/ ~JudgeClaim
             THEN IF r.whole \/ ~WholeOnly THEN t.claim.last ELSE Unknown
           ELSE FromHint(t, e)

\* The markers are confirmed and committed, what step 0 saw still holds: read on.
\* sidecar/takeover/tails.py: TailReader.behind
ReadTails ==
  /\ node.pc = "fencing"
  /\ \E i \in (first + 1)..hw : log[i].e = node.e /\ log[i].s = Marker
  /\ High(log) = node.e                      \* else: fenced by somebody newer
  /\ serving.e = node.of                     \* else: begin anew
  /\ Stops(Max({node.tail.off, node.tail.claim.off}), node.of) # {}
  /\ node' = [node EXCEPT !.pc = "read", !.found = Behind(node.tail, node.of)]
  /\ UNCHANGED <<log, hw, le, old, first, coord, serving, served, tail>>

\* The Serving record: the bases follow from what was found.
\* sidecar/takeover/takeover.py: Takeover._append
Commit ==
  /\ node.pc = "read" /\ coord = node.e      \* the changelog is fenced, too
  /\ serving' = [e |-> node.e, begins |-> hw]
  /\ served' = served \cup {node.e}
  /\ node' = Idle
  /\ UNCHANGED <<log, hw, le, old, first, coord, tail>>

\* sidecar/takeover/takeover.py: Takeover.run
StartOver ==
  /\ node.pc \in {"fencing", "read"}
  /\ serving.e # node.of \/ coord # node.e
  /\ node' = Idle
  /\ UNCHANGED <<log, hw, le, old, first, coord, serving, served, tail>>

\* The owner notes at a keep-alive what leaders remember and have acknowledged
\* since: a hint.
\* sidecar/writing/upkeep.py: acknowledged_tails
KeepTail(e) ==
  /\ OwnerNotes /\ e \in served
  /\ \E b \in {<<hw, log>>} \cup (IF old = NoOld THEN {} ELSE {<<old.hw, log>>, <<old.hw, old.log>>}) :
       LET off  == b[1]
           last == Remembered(b[2], e)
       IN  /\ last # Nothing
           /\ last <= LastS(SubSeq(log, 1, hw), e)          \* acknowledged
           /\ tail' = Place(e, last, off, NoClaim)
           /\ tail' # tail
  /\ UNCHANGED <<log, hw, le, old, first, coord, serving, served, node>>

\* World: the node dies.
Dead ==
  /\ node.pc # "idle"
  /\ node' = Idle
  /\ UNCHANGED <<log, hw, le, old, first, coord, serving, served, tail>>

-----------------------------------------------------------------------------
Next ==
  \/ \E e \in served, s \in 0..(MaxBatch - 1) : Append1(e, s) \/ AppendOld(e, s)
  \/ WriteMarker \/ Replicate \/ Retain
  \/ \E k \in 0..MaxLog : Elect(k)
  \/ LookEnds \/ LookProducers \/ NoteTails \/ OpenSlot \/ ReadTails \/ Commit \/ StartOver
  \/ \E e \in served : KeepTail(e)
  \/ Dead

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
TypeOK ==
  /\ hw \in 0..Len(log) /\ first \in 0..hw
  /\ \A i \in DOMAIN log : log[i].e \in 1..coord

\* What was found is what the log has of the last epoch, or it is known that it
\* cannot be known.
PlaceRight == node.pc = "read" => node.found \in {LastS(log, node.of), Unknown}

\* That happens only where retention took something.
UnknownRarely == node.pc = "read" /\ node.found = Unknown => first > 0

\* Behind the marker of an epoch nothing of an older one is appended.
OldEpochSilent ==
  \A i, j \in DOMAIN log : i < j => log[i].e <= log[j].e

-----------------------------------------------------------------------------
\* Not an invariant (sanity.cfg): a claim was dropped because the leader changed,
\* and the log had less than it said.
NeverDropped ==
  ~ /\ node.pc = "read"
    /\ node.tail.claim # NoClaim
    /\ node.found # Nothing /\ node.found < node.tail.claim.last
=============================================================================
