//! One suite for every transport: what a region does must not depend on the way to it.
//!
//! The cases are written against [`Fixture`]; a transport joins by implementing it and adding a
//! line to `suite!`. The model is openucx/ucx:test/gtest/uct/test_amo_cswap.cc.

#![allow(clippy::unwrap_used)] // Test code: a panic is the report.

mod cases;
mod contention;
mod faulty;
mod fixture;
mod inline;
mod tcp;

/// Makes each case a test of each transport.
macro_rules! suite {
    ($($transport:ident: $fixture:ty),* $(,)?) => {$(
        mod $transport {
            suite!(@cases $fixture, cases:
                reads_what_was_written,
                compare_and_swap_swaps_only_what_it_expects,
                fetch_and_add_wraps_around,
                a_batch_takes_effect_in_order,
                the_last_word_is_reached_and_the_next_is_not,
                offsets_are_whole_words,
                limits_of_the_queue_are_kept,
                a_key_that_was_not_opened_is_refused,
                a_made_up_key_reaches_nothing,
                a_restarted_owner_has_a_new_region,
                regions_are_apart,
                a_region_of_an_adapter_is_not_opened_by_processor_atomics);
            suite!(@cases $fixture, contention:
                additions_of_all_peers_add_up,
                each_value_has_one_winner,
                words_are_never_torn);
        }
    )*};
    (@cases $fixture:ty, $module:ident: $($case:ident),* $(,)?) => {$(
        #[test]
        fn $case() {
            use crate::fixture::Fixture;
            super::super::$module::$case(&mut <$fixture>::new());
        }
    )*};
}

mod over {
    suite! {
        inline: crate::inline::SharedMemory,
        faulty: crate::faulty::Simulated,
        tcp_encrypted: crate::tcp::Service<true>,
        tcp_plain: crate::tcp::Service<false>,
    }
}
