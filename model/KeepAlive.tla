----------------------------- MODULE KeepAlive -----------------------------
(***************************************************************************)
(* A fence is a memory that fades.  One partition, one slot, time.         *)
(*                                                                         *)
(* The partition forgets a producer id so long (Expiry) after the time of  *)
(* the newest record or marker that it saw of it, and then takes any epoch.*)
(* The coordinator forgets the slot (its transactional id) too, and gives  *)
(* it another producer id.  Epochs end: at the last one Kafka changes the  *)
(* producer id without a marker for the old one.                           *)
(*                                                                         *)
(* Against that: the fence is renewed every Interval, those of the producer*)
(* ids that the slot had before too; records older than Oldest are refused;*)
(* before the end of the epochs the slot is rotated; a producer id that    *)
(* changed is fenced explicitly.                                           *)
(*                                                                         *)
(* How the world appears in the model:                                     *)
(*   - a batch of any takeover may land at any time (frozen nodes).        *)
(*   - time does not pass while a renewal is due: nodes are alive and      *)
(*     reach Kafka in time.  Nothing is promised where none does.          *)
(*   - a takeover is one step (ExclusiveTopic takes it apart), but for     *)
(*     what it does about the producer id.                                 *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
  Expiry,     \* producer.id.expiration.ms
  Forget,     \* transactional.id.expiration.ms
  Interval,   \* between two renewals (a quarter of the least of them)
  Oldest,     \* the age that records may have
  LastEpoch,  \* the slot is rotated at this epoch; Kafka's own end is one later
  MaxTime, MaxTakeover, MaxPid   \* bounds

\* Switches.  TRUE is the protocol; FALSE is a mistake that TLC must catch.
CONSTANTS
  Renews,       \* the fence is renewed in time (FALSE: when it pleases)
  RefuseOld,    \* records above the age are refused
  KeepCoord,    \* a renewal reaches the coordinator too (FALSE: a marker written to leaders)
  FenceOld,     \* a rotation fences the old producer id first
  Retire,       \* a producer id that Kafka replaced is fenced explicitly
  KeepRetired   \* former producer ids are renewed too

VARIABLES
  now,
  part,     \* part[pid]: what the partition remembers: [e, at], e = -1: nothing
  coord,    \* the coordinator: [pid, e, at]; at: last use
  pids,     \* producer ids handed out
  takes,    \* takes[t]: stamp of the t-th takeover: [pid, e]
  kept,     \* when the fence was renewed last
  retired,  \* producer ids that the newest record lists as former ones
  top,      \* the newest takeover of which something landed
  bad       \* something of an older takeover landed behind the fence of a newer one

vars == <<now, part, coord, pids, takes, kept, retired, top, bad>>

-----------------------------------------------------------------------------
Pids  == 1..MaxPid
Max(S) == CHOOSE x \in S : \A y \in S : y <= x
Gone  == [e |-> -1, at |-> 0]
End   == LastEpoch + 2                       \* above all epochs
Turn  == Len(takes)
Stamp == takes[Turn]

Init ==
  /\ now = 0
  /\ part = [p \in Pids |-> IF p = 1 THEN [e |-> 0, at |-> 0] ELSE Gone]
  /\ coord = [pid |-> 1, e |-> 0, at |-> 0]
  /\ pids = 1
  /\ takes = <<[pid |-> 1, e |-> 0]>>
  /\ kept = 0 /\ retired = {} /\ top = 0 /\ bad = FALSE

-----------------------------------------------------------------------------
Due == now >= kept + Interval

\* World: time passes, not over a renewal that is due.  Kafka: what is too old
\* is forgotten.
Tick ==
  /\ now < MaxTime
  /\ Renews => ~Due
  /\ now' = now + 1
  /\ part' = [p \in Pids |-> IF part[p].e >= 0 /\ now + 1 > part[p].at + Expiry THEN Gone ELSE part[p]]
  /\ UNCHANGED <<coord, pids, takes, kept, retired, top, bad>>

\* Kafka: a batch of the t-th takeover lands whose newest record has some age.
Land(t, age) ==
  LET s == takes[t]
      m == part[s.pid]
  IN  /\ s.e >= m.e
      /\ (RefuseOld /\ t = Turn) => age <= Oldest     \* what a frozen node let pass counts too:
      /\ (RefuseOld /\ t # Turn) => age <= Oldest     \* its records were young enough, once
      /\ part' = [part EXCEPT ![s.pid] = [e |-> s.e, at |-> now - age]]
      /\ bad' = (bad \/ t < Turn)
      /\ top' = Max({top, t})
      /\ UNCHANGED <<now, coord, pids, takes, kept, retired>>

\* Kafka: the coordinator forgets a slot that was not used for long, or loses
\* its state.
ForgetSlot ==
  /\ coord.pid # 0 /\ now >= coord.at + Forget
  /\ coord' = [pid |-> 0, e |-> 0, at |-> now]
  /\ UNCHANGED <<now, part, pids, takes, kept, retired, top, bad>>

-----------------------------------------------------------------------------
Marked(p, pid, e) == [p EXCEPT ![pid] = [e |-> Max({e, @.e}), at |-> now]]

\* The same epoch again, on partitions and at the coordinator; and the ids that
\* the slot had before.
\* sidecar/writing/upkeep.py: keep_slot_alive
KeepAlive ==
  /\ Due \/ ~Renews
  /\ Stamp.e >= part[Stamp.pid].e
  /\ kept' = now
  /\ coord' = IF KeepCoord /\ coord.pid = Stamp.pid THEN [coord EXCEPT !.at = now] ELSE coord
  /\ part' = LET own == Marked(part, Stamp.pid, Stamp.e)
             IN  IF KeepRetired
                   THEN [p \in Pids |-> IF p \in retired THEN [e |-> End, at |-> now] ELSE own[p]]
                   ELSE own
  /\ UNCHANGED <<now, pids, takes, retired, top, bad>>

\* InitProducerId hands out the next epoch, or another producer id.
Next_(c) == IF c.pid = 0 \/ c.e > LastEpoch THEN [pid |-> pids + 1, e |-> 0, at |-> now]
            ELSE [pid |-> c.pid, e |-> c.e + 1, at |-> now]

Took(s, p, gone) ==
  /\ takes' = Append(takes, s)
  /\ part' = Marked(p, s.pid, s.e)
  /\ kept' = now
  /\ retired' = retired \cup gone
  /\ UNCHANGED <<now, top, bad>>

\* A takeover whose epoch is in order.  Where the producer id changed by itself
\* (expiry, lost state), the former one is fenced at the highest epoch there is.
\* sidecar/fencing/topic.py: fence_slot
TakeOver ==
  LET c == Next_(coord)
      changed == c.pid # Stamp.pid
  IN  /\ Turn < MaxTakeover /\ c.pid <= MaxPid
      /\ c.e < LastEpoch \/ c.pid = 0
      /\ coord' = c /\ pids' = Max({pids, c.pid})
      /\ Took([pid |-> c.pid, e |-> c.e],
              IF changed /\ Retire THEN Marked(part, Stamp.pid, End) ELSE part,
              IF changed THEN {Stamp.pid} ELSE {})

\* The epoch is the last one: the old producer id is fenced there, where nobody
\* writes, then another one is asked for.
\* sidecar/fencing/slot.py: WriterSlot.rotate
Rotate ==
  LET c == Next_(coord)
  IN  /\ Turn < MaxTakeover /\ pids < MaxPid
      /\ c.e >= LastEpoch
      /\ coord' = [pid |-> pids + 1, e |-> 0, at |-> now] /\ pids' = pids + 1
      /\ Took([pid |-> pids + 1, e |-> 0],
              IF FenceOld THEN Marked(part, c.pid, c.e) ELSE part, {c.pid})

Next == Tick \/ ForgetSlot \/ KeepAlive \/ TakeOver \/ Rotate
        \/ \E t \in 1..Turn, age \in 0..Expiry : Land(t, age)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
TypeOK == now \in 0..MaxTime /\ top <= Turn

\* Nothing of an older takeover lands behind the fence of a newer one.
OldSilent == ~bad

\* The coordinator does not forget a slot that is kept alive.
Remembered == coord.pid # 0

-----------------------------------------------------------------------------
\* Not an invariant (sanity.cfg): the slot was rotated, and time went by.
NeverRotated == ~(Turn = MaxTakeover /\ retired # {} /\ now = MaxTime /\ top = Turn)
=============================================================================
