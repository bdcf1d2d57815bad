/* Independent statement of the core (dispatch, sweep, reconcile, retry, verify, verdict) in Promela, for SPIN 6.5. It shares nothing with the
   model in TypeScript but protocol.md: what both find is no slip of one of them. Mutations: -DM_xxx. One run, NW equal workers, one provider.
   Time: Clock lets global ages grow; -DNO_A1 (Z) and -DNO_A2 (P) lift the bounds on the pause before the write and on the network. */
#ifndef NW
#define NW 2
#endif
#define D 1
#define Z 1
#define P 1
#define V 1
#define G 1
#define R 8
#ifndef EXP
#define EXP 5
#endif
#define SETTLE (D+Z+P+V)
#define min(a,b) ((a)<(b)->(a):(b))
mtype = { awaiting, executing, verifying, completed, expired, failed, recon };
mtype st = awaiting; byte rev = 0;            /* rev is only compared for equality; bounded by MAXC commits */
bool parked = false, evid = false, started = false, attempt = false, succ = false;
bool retryOk = false, refused = false;        /* a retry is recorded; one was refused for good */
byte finds = 2, verdicts = 2;                 /* finds by machine and by person that lead to the verifier, then parked */
byte resends = 1;                             /* retries left after not_sent */
byte att = 0, attAge = 0, keyAge = 0, age = 0, vtries = 1;
byte net1 = 0, net2 = 0;                      /* requests of attempt 1 / 2 in flight (0 none, 1+age) */
byte effects = 0, effAge = 0, keySt = 0;
byte reply[3];                                /* reply per attempt: 0 none 1 ok 2 rejected */
byte armed[NW];                               /* 0 not armed, else 1+ticks since the deadline check */
byte mono[NW];
bool badDispatch = false;
#define validApproval (age < EXP)
#define urgent (armedLate || net1 > P || net2 > P)
bool armedLate = false;
#ifdef M_RETENTION
#define RESERVE 0
#else
#define RESERVE (D+Z+P)
#endif
#ifdef M_RECHECK
#define STILL_VALID true
#else
#define STILL_VALID validApproval
#endif
inline park()   { st = recon; parked = true; retryOk = false }
inline toRecon(){ st = recon; parked = false; retryOk = false }
#ifdef M_REVBUMP
#define BUMP skip
#else
#define BUMP rev++
#endif
#ifdef M_CAS
#define CAS(r) (true)
#else
#define CAS(r) (rev == (r))
#endif
active proctype Clock() {
  byte i;
end: do
  :: atomic { !urgent ->
       if :: st != completed && st != expired && st != failed -> age = min(EXP, age+1) :: else fi;
       if :: att > 0 -> attAge = min(SETTLE, attAge+1); keyAge = min(R, keyAge+1) :: else fi;
       if :: effects > 0 -> effAge = min(R, effAge+1) :: else fi;
#ifndef NO_A2
       if :: net1 > 0 -> net1++ :: else fi; if :: net2 > 0 -> net2++ :: else fi;
#endif
       i = 0; do :: i < NW -> mono[i] = min(D+1, mono[i]+1);
#ifndef NO_A1
          if :: armed[i] > 0 -> armed[i]++; if :: armed[i] > Z -> armedLate = true :: else fi :: else fi;
#endif
          i++ :: else -> break od; i = 0 }
  od }
active proctype Sweeper() {
end: do
  :: atomic { st == executing && attempt && started && attAge >= D+G -> started = false; toRecon(); BUMP }
  :: atomic { st == awaiting && age >= EXP -> st = expired; BUMP }
#ifndef M_REOPEN
  :: atomic { st == failed && evid -> park(); BUMP }
#endif
  od }
inline process(a) { /* provider handles one request of attempt a */
  if
#ifdef IDEM
  :: keySt && effAge < R -> if :: reply[a] = 1 :: skip fi            /* replay */
  :: (!keySt || effAge >= R) ->
#else
  :: true ->
#endif
     if :: effects = min(2, effects+1); effAge = 0; keySt = 1; if :: reply[a] = 1 :: skip fi
        :: if :: reply[a] = 2 :: skip fi fi                           /* clear rejection */
  fi }
active proctype Provider() {
end: do
  :: atomic { net1 > 0 -> net1 = 0; if :: process(1) :: skip fi }     /* processed or lost */
  :: atomic { net2 > 0 -> net2 = 0; if :: process(2) :: skip fi }
  od }
active proctype Successor() { /* after a person closed the run as 'absent', a new run performs the refund */
end: do :: atomic { st == failed && att > 0 && !succ -> succ = true } od }
proctype Worker(byte id) {
  byte r, mine, out; bool found, old;
end: do
  /* ---------------- executor */
  :: atomic { st == awaiting && validApproval -> r = rev };
     mono[id] = 0;                                                    /* monotonic deadline starts before BEGIN */
     atomic { if
#ifdef M_EXPIRY
       :: CAS(r) && st == awaiting ->
#else
       :: CAS(r) && st == awaiting && validApproval ->
#endif
            if :: !validApproval -> badDispatch = true :: else fi;
            st = executing; att = 1; started = true; attempt = true; attAge = 0; keyAge = 0; BUMP; r = rev; mine = 1
#ifdef M_WINNER
       :: else -> mine = 1
#else
       :: else -> goto again
#endif
       fi };
call: atomic {
#ifdef M_MONOSTART
       mono[id] = 0;
#endif
       if
#ifndef M_MONOCHECK
       :: mono[id] > D -> out = 4; goto outcome
#endif
       :: else -> armed[id] = 1 fi };
     atomic { armed[id] = 0; mono[id] = 0; /* A1: pause ends here */
       byte j = 0; armedLate = false; do :: j < NW -> if :: armed[j] > Z -> armedLate = true :: else fi; j++ :: else -> break od; j = 0;
       if :: mine == 1 -> net1 = 1 :: else -> net2 = 1 fi };
     if
     :: atomic { reply[mine] > 0 -> out = reply[mine]; reply[mine] = 0 }
     :: mono[id] >= D -> out = 3                                       /* hard timeout */
     :: true -> goto again                                             /* kill -9 while waiting */
     fi;
outcome: atomic { if
       :: CAS(r) && (out == 1) && st == executing -> started = false; st = verifying; vtries = 1; evid = true; BUMP
       :: CAS(r) && (out == 2) && st == executing -> started = false; BUMP;
#ifdef M_REJECT
            st = failed
#else
            if :: att == 1 -> st = failed :: else -> toRecon() fi
#endif
       :: CAS(r) && (out == 3) && st == executing -> started = false; BUMP;
#ifdef M_TIMEOUT
            st = failed
#else
            toRecon()
#endif
       /* no byte left: as if the attempt had not been, but for the limit on such retries */
       :: CAS(r) && (out == 4) && st == executing -> started = false; att--; toRecon(); BUMP
       :: else ->
#ifndef M_LATE
            if :: out == 1 && st != completed -> evid = true :: else fi
#else
            skip
#endif
       fi; goto again }
  /* ---------------- executor: the retry that was recorded, a dispatch with every check again */
  :: atomic { st == recon && retryOk && !parked -> r = rev };
     mono[id] = 0;
     atomic { if
       :: CAS(r) && st == recon && !evid && att < 2 && (att == 0 || keyAge + RESERVE < R) && STILL_VALID -> if :: !validApproval -> badDispatch = true :: else fi;
             att++; st = executing; retryOk = false; started = true; attempt = true; attAge = 0;
             if :: att == 1 -> keyAge = 0 :: else fi; BUMP; r = rev; mine = att
       :: else ->
             if :: CAS(r) && st == recon -> retryOk = false; refused = true; BUMP :: else fi; goto again
       fi };
     goto call
  /* ---------------- redelivery of an executing run */
#ifdef M_REDELIVER
  :: atomic { st == executing && att > 0 -> r = rev; mine = att; mono[id] = 0 }; goto call
#endif
  /* ---------------- reconciler */
  :: atomic { st == recon && !parked && !retryOk -> r = rev };
     atomic { old = (attAge >= SETTLE);
       if :: effects > 0 -> found = true
          :: effects == 0 -> found = false
#ifdef EVENTUAL
          :: effects > 0 && effAge < V -> found = false
#endif
       fi };
     if
     :: found -> atomic { if
          :: CAS(r) && st == recon && finds > 0 -> finds--; st = verifying; retryOk = false; BUMP
          :: CAS(r) && st == recon && finds == 0 -> park(); BUMP
          :: else fi; goto again }
     :: !found ->
#ifdef M_OBSERVED
        atomic { old = (attAge >= SETTLE) };
#endif
#ifdef M_SETTLE
        old = true;
#endif
        if
        /* every attempt not_sent: again, or closed as never sent; neither settle nor key matter */
        :: att == 0 && !evid && resends > 0 && validApproval && !refused ->
           atomic { if :: CAS(r) && st == recon -> retryOk = true; resends--; BUMP :: else fi; goto again }
        :: att == 0 && !evid && (resends == 0 || !validApproval || refused) ->
           atomic { if :: CAS(r) && st == recon && !evid -> st = failed; BUMP :: else fi; goto again }
#if defined(IDEM) || defined(M_IDEMONLY)
        :: att > 0 && old && !evid && att < 2 && validApproval && !refused && keyAge + RESERVE < R ->
           atomic { if :: CAS(r) && st == recon && !evid -> retryOk = true; BUMP :: else fi; goto again }
#endif
        :: att > 0 && old -> atomic { if :: CAS(r) && st == recon -> park(); BUMP :: else fi; goto again }
        :: att > 0 && !old -> goto again
        fi
     fi
  /* ---------------- verifier */
  :: atomic { st == verifying -> r = rev };
     atomic { if :: effects > 0 -> found = true :: effects == 0 -> found = false
#ifdef EVENTUAL
       :: effects > 0 && effAge < V -> found = false
#endif
       fi };
     atomic { if
       :: CAS(r) && st == verifying && found -> st = completed; evid = false; BUMP
       :: CAS(r) && st == verifying && !found && vtries > 0 -> vtries--; BUMP
       :: CAS(r) && st == verifying && !found && vtries == 0 -> toRecon(); BUMP
       :: else fi; goto again }
#ifdef PERSON
  :: atomic { st == recon && parked -> r = rev };
     atomic { old = (attAge >= SETTLE); if :: effects > 0 -> found = true :: effects == 0 -> found = false
#ifdef EVENTUAL
       :: effects > 0 && effAge < V -> found = false
#endif
       fi };
     atomic { if
       :: CAS(r) && st == recon && found && verdicts > 0 -> verdicts--; st = verifying; parked = false; retryOk = false; vtries = 1; BUMP
#ifdef M_PERSON
       :: CAS(r) && st == recon && !found -> st = failed; parked = false; retryOk = false; BUMP
#else
       :: CAS(r) && st == recon && !found && old && !evid -> st = failed; parked = false; retryOk = false; BUMP
#endif
       :: else fi; goto again }
#endif
again: atomic { r = 0; mine = 0; out = 0; found = false; old = false; mono[id] = 0 }
  od }
#define inv1 (effects <= 1 && !(succ && effects > 0))
#define inv2 (!badDispatch)
#define inv4 (st != completed || effects > 0)
#define inv8 (st != failed || evid || effects == 0)
#ifdef MONITOR
active proctype Monitor() {
end: if
  :: atomic { !(inv1) -> assert(inv1) }
  :: atomic { !(inv2) -> assert(inv2) }
  :: atomic { !(inv4) -> assert(inv4) }
  :: atomic { !(inv8) -> assert(inv8) }
  fi }
#endif
init { atomic { byte k = 0; do :: k < NW -> run Worker(k); k++ :: else -> break od } }
#define goal (st == completed || st == expired || st == failed || (st == recon && parked))
#ifndef MONITOR
ltl live { <> goal }
#endif
