--------------------------- MODULE SequenceSpace ---------------------------
(***************************************************************************)
(* Sequences that wrap.  One idempotent session on one partition: what a   *)
(* node says of each batch by `SequenceSpace.judge`, with a small modulus. *)
(*                                                                         *)
(*   M      sequences count modulo M       (2^31 in the code: MODULUS)     *)
(*   Limit  an epoch is replaced so many records behind its base           *)
(*                                         (2^28: EPOCH_RECORDS)           *)
(*   Back   so far behind the expected sequence a batch may be a repeat    *)
(*                                         (2^27: REPEAT_WINDOW)           *)
(*   K      client epochs count modulo K   (2^15)                          *)
(* With M = 6: Limit = 2, Back = 2.  The client has W = 2 in flight, as    *)
(* five batches are less than Back in the code.                            *)
(*                                                                         *)
(* Takeovers are one step here (Tails and ClientSequences take them apart).*)
(* The client may send any of its unacknowledged records at any time, and  *)
(* what it sent reaches the node again as long as it is less than W behind.*)
(* An answer may be lost: then the node gives the batch up in doubt, and   *)
(* the batch may land at any later time, or never, or have landed.         *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS M, Limit, Back, W, K,
  MaxRec,    \* the client has records 0..MaxRec-1
  MaxRaise,  \* bound: how often the client raises its own epoch
  MaxEpoch   \* bound: epochs of the slot

\* Switches.  TRUE is the protocol; FALSE is a mistake that TLC must catch.
CONSTANTS
  Near,         \* a repeat is near the expected sequence (FALSE: within half a circle of the base)
  Replace,      \* an epoch ends Limit records behind its base
  CircleEpochs, \* client epochs are compared modulo K
  PlaceBehind,  \* a place that wrapped to 0 is written as M: it has a past
  CountDoubt    \* memory opens no epoch while an append is in doubt (FALSE: it counts as not written)

VARIABLES
  log,     \* entries [e, s, r]: slot epoch, stamped sequence, record
  high,    \* the highest epoch that the partition knows
  coord,   \* the last epoch that the coordinator handed out
  record,  \* the newest Serving record: [e, cep, place]
  space,   \* memory of the serving node for the partition
  data,    \* batches under way: [e, s, c, r, st]
  client   \* [low, off, cep]: first record not acknowledged, the record that has
           \* sequence 0 in the client's epoch, how often it was raised

vars == <<log, high, coord, record, space, data, client>>

-----------------------------------------------------------------------------
Max(S) == CHOOSE x \in S : \A y \in S : y <= x
None   == -1
SeqOf(r) == (r - client.off) % M
Wire    == (K - 1 + client.cep) % K        \* so that the first raise wraps to 0
InLog(r) == \E i \in DOMAIN log : log[i].r = r
LastS(e) == LET at == {i \in DOMAIN log : log[i].e = e}
            IN  IF at = {} THEN -1 ELSE log[Max(at)].s

\* sidecar/forwarder/sequences.py: place_behind
Behind(sequence) == IF PlaceBehind THEN ((sequence - 1) % M) + 1 ELSE sequence % M

Space(e, cep, place) ==
  [e |-> e, cep |-> cep, base |-> place % M, next |-> place % M,
   written |-> place # 0, past |-> place # 0, reach |-> None]

\* sidecar/forwarder/sequences.py: SequenceSpace.certain
Certain == space.reach = None \/ (space.next - space.reach) % M < M \div 2

\* sidecar/forwarder/sequences.py: SequenceSpace.stands_at
StandsAt == IF space.next # 0 \/ ~PlaceBehind THEN space.next
            ELSE IF space.past \/ space.base # 0 THEN M ELSE 0

\* sidecar/forwarder/sequences.py: SequenceSpace.judge
Judge(ce, c) ==
  IF ce # space.cep
    THEN IF space.written /\ (IF CircleEpochs THEN (ce - space.cep) % K \notin 1..(K \div 2 - 1)
                                           ELSE ce < space.cep)
           THEN "stale" ELSE IF c = 0 THEN "raise" ELSE "wait"
  ELSE IF ~Near
    THEN IF (c - space.base) % M < M \div 2 \/ (~space.past /\ space.next = space.base)
           THEN "forward" ELSE "repeat"
  ELSE IF (c - space.base) % M < Limit THEN "forward"
  ELSE IF space.past /\ (space.base - c) % M <= Back /\ (space.next - c) % M <= Back THEN "repeat"
  ELSE IF Replace /\ (space.next - space.base) % M >= Limit THEN "renew"
  ELSE IF (c - space.next) % M < Back THEN "forward" ELSE "stray"

Init ==
  /\ log = <<>> /\ high = 1 /\ coord = 1 /\ data = {}
  /\ client = [low |-> 0, off |-> 0, cep |-> 0]
  /\ record = [e |-> 1, cep |-> K - 1, place |-> 0]
  /\ space = Space(1, K - 1, 0)

-----------------------------------------------------------------------------
Arrives(r) == r >= client.off /\ r > client.low - W /\ r < client.low + W /\ r < MaxRec
Acked(r)   == client' = [client EXCEPT !.low = Max({@, r + 1})]

\* sidecar/writing/epoch.py: SlotEpoch.append
Forward(r) ==
  LET c == SeqOf(r)
      m == [e |-> space.e, s |-> (c - space.base) % M, c |-> c, r |-> r, st |-> "out"]
  IN  /\ Arrives(r) /\ Judge(Wire, c) = "forward"
      /\ \A x \in data : x.e = m.e => x.r # r
      /\ data' = data \cup {m}
      /\ space' = [space EXCEPT !.written = TRUE]
      /\ UNCHANGED <<log, high, coord, record, client>>

\* The node answers 46 by itself: the record is in the log, it says.
\* sidecar/exclusive/writer.py: SlotWriter.write
Repeat(r) ==
  /\ Arrives(r) /\ Judge(Wire, SeqOf(r)) = "repeat"
  /\ client.low <= r
  /\ Acked(r)
  /\ UNCHANGED <<log, high, coord, record, space, data>>

\* Kafka: a batch reaches the leader: appended, a repeat, or refused (45, 47).
Land(m) ==
  LET next == LastS(m.e) + 1
      new  == (m.e = high /\ m.s = next) \/ (m.e > high /\ m.s = 0)
      same == m.e = high /\ m.s < next
  IN  /\ m.st \in {"out", "stray"}
      /\ log' = IF new THEN Append(log, [e |-> m.e, s |-> m.s, r |-> m.r]) ELSE log
      /\ high' = IF new THEN m.e ELSE high
      /\ data' = (data \ {m}) \cup
           (IF m.st = "out" /\ (new \/ same) THEN {[m EXCEPT !.st = "back"]} ELSE {})
      /\ UNCHANGED <<coord, record, space, client>>

\* sidecar/forwarder/sequences.py: SequenceSpace.appended
Answered(m) ==
  LET reached == (m.c + 1) % M
  IN  /\ m.st = "back" /\ m.e = space.e
      /\ space' = IF (reached - space.next) % M < M \div 2
                    THEN [space EXCEPT !.next = reached] ELSE space
      /\ data' = data \ {m}
      /\ IF client.low <= m.r THEN Acked(m.r) ELSE UNCHANGED client
      /\ UNCHANGED <<log, high, coord, record>>

\* sidecar/forwarder/sequences.py: SequenceSpace.doubted
GiveUp(m) ==
  LET ahead == (m.c + 1 - space.next) % M
  IN  /\ m.st \in {"out", "back"} /\ m.e = space.e
      /\ space' = IF ahead < M \div 2 /\ (Certain \/ ahead > (space.reach - space.next) % M)
                    THEN [space EXCEPT !.reach = (m.c + 1) % M] ELSE space
      /\ data' = (data \ {m}) \cup (IF m.st = "out" THEN {[m EXCEPT !.st = "stray"]} ELSE {})
      /\ UNCHANGED <<log, high, coord, record, client>>

\* Nothing is under way that is still waited for.
Quiet == \A m \in data : m.e = space.e => m.st = "stray"

Opens(cep, place) ==
  /\ coord < MaxEpoch
  /\ coord' = coord + 1
  /\ record' = [e |-> coord + 1, cep |-> cep, place |-> place]
  /\ space' = Space(coord + 1, cep, place)

\* From memory, without a marker: the session stands where its answers say.
\* sidecar/writing/epoch.py: SlotEpoch.renew
Renew(r) ==
  /\ Arrives(r) /\ Judge(Wire, SeqOf(r)) = "renew"
  /\ Quiet /\ (Certain \/ ~CountDoubt)
  /\ Opens(space.cep, StandsAt)
  /\ UNCHANGED <<log, high, data, client>>

\* The client raised its own epoch.
\* sidecar/writing/epoch.py: SlotEpoch.raise_for
RaiseFor(r) ==
  /\ Arrives(r) /\ Judge(Wire, SeqOf(r)) = "raise"
  /\ Quiet /\ (Certain \/ ~CountDoubt)
  /\ Opens(Wire, 0)
  /\ UNCHANGED <<log, high, data, client>>

\* A takeover, here or at another node: a marker, the log behind it, a record.
\* sidecar/takeover/succession.py: next_positions
TakeOver ==
  LET last == LastS(record.e)
  IN  /\ Opens(record.cep, IF last = -1 THEN record.place ELSE Behind(record.place + last + 1))
      /\ high' = coord + 1
      /\ data' = {}
      /\ UNCHANGED <<log, client>>

\* Client: raises its epoch and numbers from 0 what it has left; it knows that
\* none of that is in the log, or will be.
ClientRaises ==
  /\ client.cep < MaxRaise /\ client.low < MaxRec
  /\ \A r \in client.low..MaxRec : ~InLog(r)
  /\ \A m \in data : m.r < client.low
  /\ client' = [low |-> client.low, off |-> client.low, cep |-> client.cep + 1]
  /\ UNCHANGED <<log, high, coord, record, space, data>>

Next ==
  \/ \E r \in 0..(MaxRec - 1) : Forward(r) \/ Repeat(r) \/ Renew(r) \/ RaiseFor(r)
  \/ \E m \in data : Land(m) \/ Answered(m) \/ GiveUp(m)
  \/ TakeOver \/ ClientRaises

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
TypeOK ==
  /\ coord \in 1..MaxEpoch /\ high <= coord
  /\ space.next \in 0..(M - 1) /\ space.base \in 0..(M - 1)

\* Every record once, in order, none left out.
Exactly == \A i \in DOMAIN log : log[i].r = i - 1

\* What the client counts as delivered is in the log.
NoAckLost == \A r \in 0..(client.low - 1) : InLog(r)

\* What the client needs next is taken: forwarded with a sequence that Kafka
\* takes, or answered rightly, or it opens a new epoch.
NotStuck ==
  LET c == SeqOf(client.low)
      v == Judge(Wire, c)
  IN  (client.low < MaxRec /\ Quiet /\ Certain) =>
        \/ v = "forward" /\ (c - space.base) % M <= LastS(space.e) + 1
        \/ v \in {"raise", "renew"}
        \/ v = "repeat" /\ InLog(client.low)

-----------------------------------------------------------------------------
\* Not invariants (sanity*.cfg): all records are delivered and the sequences
\* came round; the client raised its epoch twice, the log was taken over.
NeverDone   == ~ (client.low = MaxRec /\ MaxRec > M)
NeverRaised == ~ /\ client.low = MaxRec /\ client.cep = 2 /\ high > 3
                 /\ \E i, j \in DOMAIN log : log[i].e < log[j].e
=============================================================================
