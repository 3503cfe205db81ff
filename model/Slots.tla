------------------------------- MODULE Slots -------------------------------
(***************************************************************************)
(* Several writer slots of one topic.  The master slot is the topic's own; *)
(* beside it stand slots of shared sessions (each covers all partitions)   *)
(* or of partitions with owners of their own (each covers one: Covers).    *)
(*                                                                         *)
(* Whoever takes the master slot (for an owner, to share or split, or to   *)
(* adopt a free topic) opens and fences every slot that the changelog      *)
(* names, the master slot first, the others in turn.  A node that has the  *)
(* master slot opens slots beside it, and looks behind its own record      *)
(* whether it still has.                                                   *)
(*                                                                         *)
(* Checked is: nothing that was opened under an older master epoch is      *)
(* behind anything of a newer one, and a session that moves from slot to   *)
(* slot, leaves and comes back goes on where it stopped.                   *)
(*                                                                         *)
(* How the world appears in the model:                                     *)
(*   - a batch of any right to write that was ever granted may land at any *)
(*     time, or never: dead, frozen and slow nodes need no action.         *)
(*   - any client sends any sequence to any node at any time.              *)
(*   - a node gives a takeover up at any time (Abandon).                   *)
(* A slot is fenced in one step (ExclusiveTopic takes that apart), and all *)
(* that it writes is committed (Tails).                                    *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
  Nodes, Sessions, Parts,
  Side,        \* slots beside the master slot
  OnePart,     \* TRUE: a side slot covers the partition of its own name (Side = Parts)
  MaxC,        \* client sequences 0..MaxC-1 for each partition
  MaxMaster,   \* bound: epochs of the master slot
  MaxSide      \* bound: epochs of a side slot

\* Switches.  TRUE is the protocol; FALSE is a mistake that TLC must catch.
CONSTANTS
  FenceSide,    \* the taker of the master slot fences the other slots too
  OwnMarker,    \* each slot's log is read to that slot's own marker (FALSE: the master's)
  CheckMaster,  \* a side slot is used only if the master slot still is this node's
  LookAgain,    \* what was seen before the fence must still hold behind it
  Mentions,     \* other slots' records tell where a session stands
  KeepLeft,     \* a record tells where the session before stood that left
  Under,        \* of two words on a session the one counts that was written under the later
                \* record of the master slot (FALSE: the later one)
  UnderOwn      \* a side slot's record names the master slot's record by which its node has
                \* that (FALSE: the newest one that the node has read)

VARIABLES
  log,      \* log[p]: entries [sl, e, s, m, w, c]; a marker has s = -1
  coord,    \* coord[slot]: the last epoch handed out
  known,    \* known[slot]: the highest epoch that the changelog has seen
  rec,      \* rec[slot]: the newest record in the changelog that opened an epoch
  owner,    \* Ownership: [w, deposed], w = nobody where it was released or shared
  at,       \* length of the changelog
  granted,  \* rights to write: [sl, e, m, w, base]
  task,     \* task[n]: the takeover under way at a node
  holds     \* holds[n]: the master epoch under which the node opens slots, 0: none

vars == <<log, coord, known, rec, owner, at, granted, task, holds>>

-----------------------------------------------------------------------------
Master == "master"
Slot   == {Master} \cup Side
Nobody == "nobody"
Zero   == [p \in Parts |-> 0]
Max(S) == CHOOSE x \in S : \A y \in S : y <= x
Min(S) == CHOOSE x \in S : \A y \in S : x <= y
Covers(sl) == IF OnePart /\ sl # Master THEN {sl} ELSE Parts

\* When a word on a session was written: under which record of the master slot,
\* and itself.
When(under, a) == IF Under THEN 100 * under + a ELSE a

\* Where sessions stood that left: at = 0 where nothing is known.
NoLeft == [w \in Sessions |-> [at |-> 0, next |-> Zero]]
NoRec  == [e |-> 0, w |-> Nobody, base |-> Zero, left |-> NoLeft, at |-> 0, under |-> 0]
NoOwner == [w |-> Nobody, deposed |-> {}]
NoTask == [pc |-> "idle", sl |-> Master, w |-> Nobody, kind |-> "none", saw |-> [s \in Slot |-> NoRec], own |-> NoOwner,
           es |-> [s \in Slot |-> 0], m |-> 0, base |-> Zero, left |-> NoLeft]

High(p, sl) == Max({log[p][i].e : i \in {j \in DOMAIN log[p] : log[p][j].sl = sl}} \cup {0})
Datas(p, sl, e) == {i \in DOMAIN log[p] : log[p][i].sl = sl /\ log[p][i].e = e /\ log[p][i].s >= 0}
LastS(p, sl, e) == IF Datas(p, sl, e) = {} THEN -1 ELSE log[p][Max(Datas(p, sl, e))].s

Init ==
  /\ log = [p \in Parts |-> <<>>]
  /\ coord = [s \in Slot |-> 0] /\ known = [s \in Slot |-> 0]
  /\ rec = [s \in Slot |-> NoRec] /\ owner = NoOwner /\ at = 0
  /\ granted = {}
  /\ task = [n \in Nodes |-> NoTask]
  /\ holds = [n \in Nodes |-> 0]

-----------------------------------------------------------------------------
\* Kafka: a batch lands under a right that was granted once.  What is below the
\* base the node answers as a repeat.
Land(r, p, c) ==
  LET s == c - r.base[p]
  IN  /\ p \in Covers(r.sl) /\ s >= 0
      /\ \/ r.e = High(p, r.sl) /\ s = LastS(p, r.sl, r.e) + 1
         \/ r.e > High(p, r.sl) /\ s = 0
      /\ log' = [log EXCEPT ![p] = Append(@, [sl |-> r.sl, e |-> r.e, s |-> s, m |-> r.m, w |-> r.w, c |-> c])]
      /\ UNCHANGED <<coord, known, rec, owner, at, granted, task, holds>>

-----------------------------------------------------------------------------
(* Takeover of a slot                                                      *)

Named == {s \in Side : rec[s].e > 0}        \* the slots that the changelog names
All(t) == IF t.sl = Master /\ FenceSide THEN {Master} \cup {s \in Side : t.saw[s].e > 0} ELSE {t.sl}

Look(n, sl, w, kind) ==
  /\ task[n].pc = "idle"
  /\ coord[sl] < (IF sl = Master THEN MaxMaster ELSE MaxSide)
  /\ w \notin owner.deposed
  /\ task' = [task EXCEPT ![n] = [NoTask EXCEPT !.pc = "looked", !.sl = sl, !.w = w, !.kind = kind,
                                   !.saw = rec, !.own = owner, !.m = holds[n]]]
  /\ UNCHANGED <<log, coord, known, rec, owner, at, granted, holds>>

\* One session alone: a change of owner, or the owner goes on.
\* sidecar/exclusive/topic.py: GovernedTopic._claim
Own(n, w) == Look(n, Master, w, "own")

\* For nobody, so that others may write beside each other; a partition's owner
\* each (splits) is the same.
\* sidecar/exclusive/topic.py: GovernedTopic._share
Share(n) == Look(n, Master, Nobody, "share")

\* Nobody serves the topic: its fence needs a node.
\* sidecar/exclusive/topic.py: GovernedTopic._adopt
Adopt(n) == rec[Master].e > 0 /\ Look(n, Master, Nobody, "adopt")

\* A session gets a slot beside the master slot that this node has.
\* sidecar/exclusive/shared.py: SharedSession._open
OpenSide(n, sl, w) == /\ holds[n] > 0 /\ sl \in Side
                      /\ \A r \in granted : r.m = holds[n] => (r.w # w \/ OnePart \/ r.sl = sl)
                      /\ Look(n, sl, w, "side")

\* The slot of the taker before the others.
\* sidecar/fencing/topic.py: open_slots
OpenSlots(n) ==
  LET t == task[n]
      first == t.es[t.sl] = 0
      some == IF first THEN {t.sl} ELSE All(t) \ {t.sl}
  IN  /\ t.pc = "looked"
      /\ \A s \in some : s = Master \/ coord[s] < MaxSide
      /\ coord' = [s \in Slot |-> IF s \in some THEN coord[s] + 1 ELSE coord[s]]
      /\ task' = [task EXCEPT ![n].es = [s \in Slot |-> IF s \in some THEN coord[s] + 1 ELSE t.es[s]],
                              ![n].pc = IF first /\ All(t) # {t.sl} THEN "looked" ELSE "fencing"]
      /\ UNCHANGED <<log, known, rec, owner, at, granted, holds>>

Fenced(t, s) == known[s] >= t.es[s]

\* One slot after the other, the taker's first: a marker in every partition that
\* the slot may write and in the changelog.
\* sidecar/fencing/topic.py: fence_slot
FenceSlot(n, s) ==
  LET t == task[n]
  IN  /\ t.pc = "fencing" /\ s \in All(t) /\ ~Fenced(t, s)
      /\ s # t.sl => Fenced(t, t.sl)
      /\ log' = [p \in Parts |->
           IF p \in Covers(s) /\ High(p, s) <= t.es[s]
             THEN Append(log[p], [sl |-> s, e |-> t.es[s], s |-> -1, m |-> 0, w |-> Nobody, c |-> -1])
             ELSE log[p]]
      /\ known' = [known EXCEPT ![s] = t.es[s]]
      /\ UNCHANGED <<coord, rec, owner, at, granted, task, holds>>

\* What a record tells of the place of a session: behind the last that was
\* stamped under it, up to a marker.
Stop(p, s, t) ==
  LET ends == {i \in DOMAIN log[p] : \/ log[p][i].sl = s /\ log[p][i].e > rec[s].e
                                     \/ ~OwnMarker /\ log[p][i].sl = t.sl /\ log[p][i].e = t.es[t.sl]}
  IN  IF ends = {} THEN Len(log[p]) + 1 ELSE Min(ends)
Next_(s, t) ==
  [p \in Parts |->
     LET mine == {i \in Datas(p, s, t.saw[s].e) : i < Stop(p, s, t)}
     IN  t.saw[s].base[p] + (IF mine = {} THEN 0 ELSE log[p][Max(mine)].s + 1)]

\* The newest word on a session: [at, next].
Word(w, t) ==
  LET slots == IF Mentions THEN Slot ELSE {t.sl}
      said  == {[at |-> When(t.saw[s].under, t.saw[s].at), next |-> Next_(s, t), sl |-> s] : s \in {x \in slots : t.saw[x].w = w}}
          \cup {[at |-> t.saw[s].left[w].at, next |-> t.saw[s].left[w].next, sl |-> Master] : s \in slots}
  IN  [p \in Parts |->
         LET for_p == {x \in said : x.at > 0 /\ p \in Covers(x.sl)}
         IN  IF for_p = {} THEN 0 ELSE (CHOOSE x \in for_p : \A y \in for_p : y.at <= x.at).next[p]]

\* All is fenced: read the changelog to the marker, then the logs.  What was seen
\* before must still hold.
\* sidecar/takeover/takeover.py: Takeover._last
ReadLogs(n) ==
  LET t    == task[n]
      o    == t.saw[t.sl]
      left == [w \in Sessions |->
                 IF w = t.w THEN [at |-> 0, next |-> Zero]
                 ELSE IF w = o.w /\ KeepLeft THEN [at |-> When(o.under, o.at), next |-> Next_(t.sl, t)]
                 ELSE o.left[w]]
  IN  /\ t.pc = "fencing" /\ \A s \in All(t) : Fenced(t, s)
      /\ IF LookAgain /\ (\/ \E s \in All(t) \cup (IF t.sl = Master THEN Side ELSE {}) : rec[s] # t.saw[s]
                          \/ t.sl = Master /\ owner # t.own)
           THEN task' = [task EXCEPT ![n] = NoTask]
           ELSE task' = [task EXCEPT ![n].pc = "read", ![n].left = left,
                                     ![n].base = IF t.w = Nobody THEN Zero ELSE Word(t.w, t)]
      /\ UNCHANGED <<log, coord, known, rec, owner, at, granted, holds>>

\* The record is appended, stamped by the slot: refused where that was fenced.
\* sidecar/takeover/takeover.py: Takeover._append
Commit(n) ==
  LET t == task[n]
      lost == IF owner.w \in {t.w, Nobody} THEN {} ELSE {owner.w}
  IN  /\ t.pc = "read" /\ known[t.sl] = t.es[t.sl]
      /\ (t.sl # Master /\ UnderOwn) => t.saw[Master].e = t.m
      /\ at' = at + 1
      /\ \E under \in IF t.sl = Master THEN {at + 1}
                     ELSE {t.saw[Master].at} \cup (IF UnderOwn THEN {} ELSE {rec[Master].at}) :
           rec' = [rec EXCEPT ![t.sl] =
             [e |-> t.es[t.sl], w |-> t.w, base |-> t.base, left |-> t.left, at |-> at + 1, under |-> under]]
      /\ owner' = IF t.sl # Master \/ t.kind = "adopt" THEN owner
                  ELSE [w |-> t.w, deposed |-> owner.deposed \cup lost]
      /\ task' = [task EXCEPT ![n].pc = "committed"]
      /\ UNCHANGED <<log, coord, known, granted, holds>>

\* Behind its own record the node has the master slot still.
\* sidecar/takeover/slots.py: SlotRecords.check_master
Serve(n) ==
  LET t == task[n]
      right == [sl |-> t.sl, e |-> t.es[t.sl], m |-> IF t.sl = Master THEN t.es[Master] ELSE t.m,
                w |-> t.w, base |-> t.base]
  IN  /\ t.pc = "committed"
      /\ (t.sl # Master /\ CheckMaster) => (known[Master] = t.m /\ holds[n] = t.m)
      /\ granted' = IF t.w = Nobody THEN granted ELSE granted \cup {right}
      /\ holds' = [holds EXCEPT ![n] = IF t.sl = Master THEN IF t.kind = "share" THEN t.es[Master] ELSE 0 ELSE @]
      /\ task' = [task EXCEPT ![n] = NoTask]
      /\ UNCHANGED <<log, coord, known, rec, owner, at>>

\* The owner leaves and may come back, which is written under its own epoch:
\* whoever comes next writes down where it stood.
\* sidecar/exclusive/topic.py: GovernedTopic._let_go
Release(r) ==
  /\ r.sl = Master /\ owner.w = r.w /\ known[Master] = r.e /\ rec[Master].e = r.e
  /\ owner' = [owner EXCEPT !.w = Nobody]
  /\ granted' = granted \ {r}                \* quiet: all was answered
  /\ UNCHANGED <<log, coord, known, rec, at, task, holds>>

\* World: a takeover ends anywhere; a node that dies lets go of the master slot.
Abandon(n) ==
  /\ task[n].pc # "idle" \/ holds[n] > 0
  /\ task' = [task EXCEPT ![n] = NoTask]
  /\ holds' = [holds EXCEPT ![n] = 0]
  /\ UNCHANGED <<log, coord, known, rec, owner, at, granted>>

Next ==
  \/ \E r \in granted, p \in Parts, c \in 0..(MaxC - 1) : Land(r, p, c)
  \/ \E n \in Nodes :
       \/ \E w \in Sessions : Own(n, w) \/ \E sl \in Side : OpenSide(n, sl, w)
       \/ Share(n) \/ Adopt(n) \/ OpenSlots(n) \/ ReadLogs(n) \/ Commit(n) \/ Serve(n) \/ Abandon(n)
       \/ \E s \in Slot : FenceSlot(n, s)
  \/ \E r \in granted : Release(r)

Spec == Init /\ [][Next]_vars

Symmetry == Permutations(Nodes) \cup Permutations(Sessions)

-----------------------------------------------------------------------------
Data(p) == {i \in DOMAIN log[p] : log[p][i].s >= 0}

TypeOK == \A s \in Slot : known[s] <= coord[s] /\ rec[s].e <= coord[s]

\* Behind anything of a master epoch nothing of an older one is appended.
MasterRises == \A p \in Parts : \A i, j \in Data(p) : i < j => log[p][i].m <= log[p][j].m

\* Under one master epoch either its owner writes, or sessions beside each other.
Alone == \A p \in Parts : \A i, j \in Data(p) :
           log[p][i].m = log[p][j].m => (log[p][i].sl = Master) = (log[p][j].sl = Master)

\* Every client sequence once, in order, none left out.
Exactly ==
  \A p \in Parts, w \in Sessions :
    LET of_w == {i \in Data(p) : log[p][i].w = w}
    IN  \A i \in of_w : log[p][i].c = Cardinality({j \in of_w : j < i})

\* What is answered as a repeat is in the log.
RepeatTrue ==
  \A r \in granted, p \in Parts : p \in Covers(r.sl) =>
    \A c \in 0..(r.base[p] - 1) : \E i \in Data(p) : log[p][i].w = r.w /\ log[p][i].c = c

\* The records tell at any time where a session stands that may come back.
PlaceKnown ==
  \A w \in Sessions \ owner.deposed : \A p \in Parts :
    Word(w, [NoTask EXCEPT !.saw = rec])[p] = Cardinality({i \in Data(p) : log[p][i].w = w})

\* A right that nobody fenced takes what its client needs next.
NotStuck ==
  \A r \in granted : \A p \in Covers(r.sl) :
    (r.e = coord[r.sl] /\ rec[r.sl].e = r.e) =>
      Cardinality({i \in Data(p) : log[p][i].w = r.w}) <= r.base[p] + LastS(p, r.sl, r.e) + 1

-----------------------------------------------------------------------------
\* Not an invariant (sanity.cfg): a session wrote in a side slot, then owned the
\* topic and went on behind that.
NeverMoved ==
  ~ \E p \in Parts : \E i, j \in Data(p) :
      /\ i < j /\ log[p][i].w = log[p][j].w
      /\ log[p][i].sl # Master /\ log[p][j].sl = Master
=============================================================================
