//! Every source keeps the contract of `capture::Source`. The stories are in `common`; here is who must tell them.

mod common;

/// One module of tests for each way to get frames. A new source adds a rig in `common` and a line below.
macro_rules! conformance {
    ($($source:ident: $rig:ty,)*) => {$(
        mod $source {
            conformance!(@stories $source, $rig:
                a_stopped_source_ends_for_ever_and_forgets_nothing
                every_size_and_every_tag_arrives_byte_for_byte_and_in_order
                stamps_never_go_back_and_lie_within_the_run
                a_budget_is_kept_and_frames_are_counted_right
                a_stalled_reader_loses_frames_by_count_and_the_books_balance
                a_source_can_be_opened_again
                a_random_walk_of_sending_and_reading_agrees_with_a_queue
            );
        }
    )*};
    (@stories $source:ident, $rig:ty: $($story:ident)*) => {$(
        #[test]
        fn $story() {
            super::common::$story::<$rig>(concat!(stringify!($source), "::", stringify!($story)));
        }
    )*};
}

conformance! {
    tpacket: super::common::tpacket::Rig,
}
