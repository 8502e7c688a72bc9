//! The version table: by which a cache proves at each hit that nothing has changed.
//!
//! One region per site, in the memory of the machine where the data lives. A **tag** is hashed to
//! one word, `stamp 48 | pending 16`; two tags on one word invalidate too much, never too little.
//!
//! ```text
//! update:  begin: pending += 1 on every word;  the writer commits;  end: on every word
//!          stamp := a value newly drawn from the site's sequence, pending -= 1, in one swap
//! fill:    (I, G) := incarnation and sequence;  only then the origin is asked
//! hit:     after the request arrived: valid iff the table's incarnation is I and every word has
//!          pending = 0 and stamp <= G; the words are read in any order
//! ```
//!
//! **Why no hit is older than what was committed when its request arrived.** Take a commit that
//! the entry does not have and that came before the arrival. The fill read G before the origin,
//! which did not have the commit yet, and the writer draws its stamp s after the commit; so G < s.
//! From before the commit until its end the word has a pending update, then a stamp of at least s:
//! both fail, at whatever moment behind the arrival the word is read. Each word tells for itself,
//! so they need not be read at one instant. Formally: the origin's answer does not have the commit
//! and so G's load does not see the draw (draw *releases*, G's load *acquires*); raise happens
//! before commit, commit before whatever made the client ask, that before the hit's loads
//! (`is_valid` begins with an *acquire* fence); by coherence these see the raise or what came later
//! in the word's history.
//!
//! **Summary words.** A large table has one more word for each 1,024, a *fine* one, and one for
//! each 65,536, a *coarse* one, and an update raises and lowers them as if it had two tags more.
//! The argument above holds for these words as for any other, so an entry is valid also if all
//! *coarse* words of its tags have pending = 0 and stamp <= G, or all *fine* ones: where that
//! fails, something of the groups changed, and the next level is asked, its own words last. Of the
//! default table the coarse words are 2 KiB, the fine ones 128 KiB: most hits touch none of its
//! 128 MiB, and on a calm site they find all in the processor's first cache.
//!
//! # Records: what a writer may die at
//!
//! A count says nothing of whose it is. So every update first lists its words in a **record**, and
//! an explicit `settle` takes back exactly what a dead writer raised. The hard case is a death
//! between two operations: nobody can tell whether a swap of the word took place.
//!
//! ```text
//!           take: swap, new generation        all raised: swap
//!   free ------------------------> raising ---------------------> begun
//!    ^ ^                            |    |                       |     |
//!    | |                settle      |    | refused: undo     end |     | settle
//!    | |     settling <-------------+    +-------> lowering <----+-----+
//!    | |      |    ^                                |    |
//!    | +------+    +--------------------------------+    | all lowered: swap
//!    | all counted anew: swap       settle               |
//!    +---------------------------------------------------+
//!
//! begin:   header: free -> (generation + 1, raising, writer)
//!          list every slot in an entry that carries the generation
//!          per slot:  w := word;  is the header still ours?  swap word: w -> w + 1, or again
//!          header: raising -> begun;  is the table retired?  then undo
//! end:     header: begun -> lowering
//!          per slot:  s := draw;  w := word;  is the header still ours?
//!                     s newer than w's stamp?  swap word: w -> (s, pending - 1), or again
//!          header: lowering -> free
//! settle:  begun: end it in the writer's place.  raising, lowering: -> settling, then for each
//!          listed slot count all records that hold it (`settle`), and swap the word to that number
//! ```
//!
//! Why that is exact:
//! 1. **No word ever has a value twice.** `pending` rises under one stamp; whatever lowers it (an
//!    end, an abort, a settler) writes a strictly newer stamp. So a swap misses if the word was
//!    changed in between, however late it lands.
//! 2. **A counted word is right.** The count is swapped in only if the word did not change between
//!    its read and the swap. A record seen as *begun* has raised and not lowered the word then; one
//!    seen as *free* or *settling*, or seen before it was taken, has not raised it since, or the
//!    word would have changed. Only *raising* and *lowering* are unknown: the settler comes
//!    again, and says whose update is in its way if that does not end.
//! 3. **A writer that is not dead after all does no harm.** It reads the word, *then* its header.
//!    If the header is still its own, the settler's count comes later and changes the word, so that
//!    the writer's swap misses; if not, it stops. Entries and headers carry the generation.
//! 4. **A settler may die at any step.** The record stays *lowering* or *settling*, and the next
//!    call counts anew. Counting has no memory, so several settlers may do it at once.
//!
//! Nothing settles by itself: a timer or a closed socket says nothing of a commit that is on its
//! way. An update with more than 63 words takes several records, each of which is right for itself.
//!
//! # A new table
//!
//! A restarted owner makes a new region, and by its incarnation everything old is void. But readers
//! may still map the old one, and an update that began there marks nothing in the new. So
//! 1. the owner adopts the old region ([`VersionTable::open_adopted`]) and *retires* it before it
//!    publishes the new one: whoever still reads there finds nothing valid. Its file is therefore
//!    kept by a process that outlives the owner; if nobody has it any more, no update may begin in
//!    the new table before every reader has let the old one go;
//! 2. the new table is *closed* until nothing is undecided in the old
//!    ([`VersionTable::admit_hits_after`]). An update of the old table whose writer lives and comes
//!    to end it is *settled* there, by the name of its writer: an owner that gives every update a
//!    writer's name of its own needs to keep nothing else of it.
//!
//! `retire` closes a table for good; `begin` looks at that word last, `undecided` reads the records
//! behind it (both sequentially consistent), so an update either sees it or is seen.
//!
//! # Who uses what
//!
//! ```text
//!   edge, on a miss    fill() before the origin is asked;  slots_of(tags) of the response
//!   edge, on a hit     is_valid(filled, slots)
//!   edge, far away     FarTable: fill(), check(filled, slots), by batches
//!   writer, agent      begin(writer, slots) -> update;  end(update) | abort(update)
//!   agent, restarted   open_adopted, retire, publish, admit_hits_after;  settle(writer, Decided)
//!   who looks on       undecided(), pending_updates(), version(slot)
//! ```
//!
//! # Size and cost
//!
//! ```text
//!   words       memory   entries voided in vain by one update, per million tags in use
//!   2^20         8 MiB   95 % of those voided rightly
//!   2^22        32 MiB   24 %
//!   2^24       128 MiB    6.0 %      (the default)
//!   2^26       512 MiB    1.5 %
//! ```
//!
//! and half a MiB of records. With T tags in use an update voids, beside the entries of its own
//! tag, those of T / words others.
//!
//! **`fill` and `is_valid` are hot paths**: no system call, no allocation, no lock. Validation is
//! one load per tag and one for the incarnation, 16 with no decision between them; the same once
//! more for each level at which a word has changed. The own words lie far apart in 2^24: such a
//! load costs what page tables and memory cost, for several are under way at once, 100 of them
//! 1.3 us. Sorted slots gain nothing.
//!
//! `tests/model` runs these machines under the model checker, with the wrong variants;
//! `tests/hammer` runs them on real memory, with writers that are killed.

mod access;
mod begin;
mod check;
mod far;
#[cfg(test)]
#[cfg(not(loom))]
mod fuzz_tests;
mod layout;
mod lower;
mod remote;
mod settle;
mod steps;
mod table;
mod word;

pub use begin::{Begin, BeginError};
pub use check::{Check, Fill};
pub use far::{FarError, FarTable};
pub use layout::{RECORD_SLOTS, RECORDS, TableLayout};
pub use lower::{EndError, Lower};
pub use remote::{Run, Want};
pub use settle::{Settle, SettleError};
pub use steps::{Held, Machine, Memory, Next, Op, Place, ROUNDS_MAX, Shape, drive};
pub use table::{Decided, PendingUpdate, Ticket, UPDATE_SLOTS_MAX, Update, VersionTable};
pub use word::{
    Filled, PENDING_MAX, RecordHeader, RecordPhase, Slot, SlotBits, Stamp, VersionWord, WriterId,
};
