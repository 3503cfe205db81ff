------------------------- MODULE TransactionalFence -------------------------
(***************************************************************************)
(* Transactional producers that share one transactional id, one after the  *)
(* other, and one partition.  When is a deposed one silent?  Not code of   *)
(* this project: docs/internals/transactional-ids.md says what it is for.  *)
(*                                                                         *)
(* InitProducerId gives the next producer a higher epoch and aborts what   *)
(* the last one had open.  It writes to no other partition.  A partition   *)
(* learns an epoch from batches and markers alone.  The leader asks the    *)
(* coordinator about the first batch of a transaction (KIP-890), and then  *)
(* takes all until the marker.                                             *)
(*                                                                         *)
(* How the world appears in the model:                                     *)
(*   - a batch of any producer, at any epoch that it ever had, may arrive  *)
(*     at any time, again and again.                                       *)
(*   - the coordinator moves at any time.  The former one may not know it, *)
(*     answers from what it remembers, and writes nothing: nobody          *)
(*     replicates it.                                                      *)
(*   - sequences, which refuse some of these batches, are left out; so is  *)
(*     what partitions forget (KeepAlive).                                 *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
  MaxProducer, MaxEpoch, MaxAsked   \* bounds; MaxAsked: questions at a time

\* Switches.  Which of them make a fence together is what the configurations say.
CONSTANTS
  Verifies,   \* leaders ask (transaction.partition.verification.enable)
  Guards,     \* a marker makes the answers to earlier questions void
  Known,      \* leaders ask the coordinator that there is, none that was replaced
  Bumps,      \* EndTxn raises the epoch (version 5, transaction.version 2)
  Marks       \* a new producer is the holder once a marker of its epoch is written

VARIABLES
  coord,    \* the coordinator: [st, e]: "Idle", "Ongoing" with the partition, or
            \* "Ending", where the marker is to be written at epoch e
  was,      \* what a coordinator that was replaced remembers, <<>> while there is none
  log,      \* the partition: [e, open]: the highest epoch, data of a transaction without marker
  asked,    \* the leader's questions: [o, e, ok]
  had,      \* had[o]: epochs of the o-th producer
  holder,   \* the newest producer whose fence is complete
  wrote,    \* producers that wrote while they were the holder
  bad       \* something of an older one was appended behind that fence

vars == <<coord, was, log, asked, had, holder, wrote, bad>>

-----------------------------------------------------------------------------
Max(S)    == CHOOSE x \in S : \A y \in S : y <= x
Producers == 1..Len(had)
Newest    == Len(had)

Init ==
  /\ coord = [st |-> "Idle", e |-> 0] /\ was = <<>>
  /\ log = [e |-> -1, open |-> FALSE]
  /\ asked = {} /\ had = <<{0}>> /\ holder = 1 /\ wrote = {} /\ bad = FALSE

Marked(e) ==
  /\ log' = [e |-> Max({e, log.e}), open |-> FALSE]
  /\ asked' = IF Guards THEN {} ELSE asked

-----------------------------------------------------------------------------
\* Client: AddPartitionsToTxn, or the Produce that implies it.
Begin ==
  /\ coord.st = "Idle" /\ coord.e \in had[Newest]
  /\ coord' = [coord EXCEPT !.st = "Ongoing"]
  /\ UNCHANGED <<was, log, asked, had, holder, wrote, bad>>

\* Client: EndTxn.
End ==
  /\ coord.st = "Ongoing" /\ coord.e < MaxEpoch
  /\ LET e == IF Bumps THEN coord.e + 1 ELSE coord.e
     IN  /\ coord' = [st |-> "Ending", e |-> e]
         /\ had' = [had EXCEPT ![Newest] = @ \cup {e}]
  /\ UNCHANGED <<was, log, asked, holder, wrote, bad>>

\* Client: InitProducerId while a transaction is open: it is aborted at the next
\* epoch, which nobody has, and the client asks again.
Abort ==
  /\ coord.st = "Ongoing" /\ coord.e < MaxEpoch
  /\ coord' = [st |-> "Ending", e |-> coord.e + 1]
  /\ UNCHANGED <<was, log, asked, had, holder, wrote, bad>>

\* Client: InitProducerId of another process.
Depose ==
  /\ coord.st = "Idle" /\ coord.e < MaxEpoch /\ Newest < MaxProducer
  /\ coord' = [coord EXCEPT !.e = @ + 1]
  /\ had' = Append(had, {coord.e + 1})
  /\ holder' = IF Marks THEN holder ELSE Newest + 1
  /\ UNCHANGED <<was, log, asked, wrote, bad>>

\* Client: an empty aborted transaction with the partition, at the epoch that it
\* got, as a node does it for its slots (WriterSlot.fence); one step here.
Mark ==
  /\ Marks /\ holder < Newest
  /\ coord.st = "Idle" /\ coord.e \in had[Newest]
  /\ Marked(coord.e)
  /\ holder' = Newest
  /\ UNCHANGED <<coord, was, had, wrote, bad>>

\* Kafka: the marker is written.
EndMarker ==
  /\ coord.st = "Ending"
  /\ coord' = [coord EXCEPT !.st = "Idle"]
  /\ Marked(coord.e)
  /\ UNCHANGED <<was, had, holder, wrote, bad>>

\* World: another broker coordinates, and knows all; this one does not hear of it.
Move ==
  /\ was = <<>>
  /\ was' = <<coord>>
  /\ UNCHANGED <<coord, log, asked, had, holder, wrote, bad>>

-----------------------------------------------------------------------------
\* Kafka: a batch arrives, and its leader asks.
Ask(o, e) ==
  /\ Verifies /\ ~log.open /\ e >= log.e /\ Cardinality(asked) < MaxAsked
  /\ asked' = asked \cup {[o |-> o, e |-> e, ok |-> FALSE]}
  /\ UNCHANGED <<coord, was, log, had, holder, wrote, bad>>

Passes(c, e) == c.st = "Ongoing" /\ c.e = e

\* Kafka: a coordinator lets it pass.  A refusal changes nothing.
Pass(q) ==
  /\ ~q.ok
  /\ \/ Passes(coord, q.e)
     \/ ~Known /\ was # <<>> /\ Passes(was[1], q.e)
  /\ asked' = (asked \ {q}) \cup {[q EXCEPT !.ok = TRUE]}
  /\ UNCHANGED <<coord, was, log, had, holder, wrote, bad>>

\* Kafka: it is appended.
Land(o, e) ==
  /\ e >= log.e
  /\ log.open \/ ~Verifies \/ [o |-> o, e |-> e, ok |-> TRUE] \in asked
  /\ log' = [e |-> e, open |-> TRUE]
  /\ asked' = {}
  /\ wrote' = IF o = holder THEN wrote \cup {o} ELSE wrote
  /\ bad' = (bad \/ o < holder)
  /\ UNCHANGED <<coord, was, had, holder>>

Next == Begin \/ End \/ Abort \/ Depose \/ Mark \/ EndMarker \/ Move
        \/ \E o \in Producers : \E e \in had[o] : Ask(o, e) \/ Land(o, e)
        \/ \E q \in asked : Pass(q)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
TypeOK == coord.e \in 0..MaxEpoch /\ holder \in Producers /\ log.e <= MaxEpoch

\* Nothing of a deposed producer is appended behind the fence.
DeposedSilent == ~bad

-----------------------------------------------------------------------------
\* Not an invariant (sanity.cfg): all hold the id in turn and write, over a
\* coordinator that moves.
NeverInTurn == ~(wrote = 1..MaxProducer /\ was # <<>>)
=============================================================================
