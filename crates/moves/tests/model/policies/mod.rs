//! The choice of taker, donor and node by the real policies, under the checker.
//!
//! The rows of `main` let donor, taker and node be chosen freely, read by read: they hold for every
//! policy. Here the policy chooses, on a view made of what an edge has read, and loads are part of
//! the state: a site's demand has one of three levels, which an action may change. What is checked
//! is what a policy promises beyond floors: whose nodes are taken and how far, that nodes come to
//! rest while loads are constant, and that a loaded site can reach what it was promised.
//!
//! Taken as given, because rows of their own check it: a look is two steps (all site words, then
//! all node words with loads), and two claims for one site are a move apart (`event`: hold, restart
//! on a seen claim, guard). Descriptors that are pending are helped before their taker is given
//! anything else, for a hold is longer than the politeness of helping.
//!
//! ```text
//! row  policy     edges sites nodes  budgets                         states (generated)  time
//!  18  reconf_pq    2     2     4    2 load changes, 1 crash            154,299  (0.5 M)   4 s
//!  19  reconf_pq    2     2     4    the same, equal priorities          11,756 (0.04 M) 0.2 s
//!  20  reconf_pq    2     3     4    1 load change, 1 crash             164,325  (0.5 M)   5 s
//!  21  reconf_pq    2     3     4    the same; below hard; free node    221,972  (0.7 M)   7 s
//!  22  reconf_p     2     2     4    2 load changes, 1 crash            154,299  (0.5 M)   5 s
//!  23* reconf_pq    3     3     4    1 load change, 1 crash           7,567,276   (35 M) 177 s
//!  24* reconf_p     2     3     4    2 load changes, 1 crash         18,726,876   (63 M) 487 s
//!  25  staged       2     3     4    1 load change, 1 crash              24,459 (0.07 M) 0.3 s
//!  26  slo          2     2     4    2 load changes, 1 crash             35,718  (0.1 M) 0.5 s
//!  27  slo          2     3     4    1 load change                      227,431  (0.5 M)   3 s
//! ```
//!
//! Rows 18 and 22 are alike: with four nodes, a soft guarantee of three is all that the hard one of
//! the other site leaves. In row 25 a site needs nodes of a class; in rows 26 and 27 sites have
//! objectives, and a load that makes a node hot may still be in time. All but the rows with a star
//! are searched with solo progress: one live edge alone, at constant loads, comes to rest, and
//! then no loaded site lacks what it could take under the rules, nor what another could make way
//! for.

mod rows;
mod spec;
mod world;
