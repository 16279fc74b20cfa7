//! `forebayd dev` under faults of its environment: foreign records, a full disk, bad input at the
//! service's edge, damaged files, a clock that jumps, kills.

mod bad_input;
mod clock;
#[path = "../daemon/mod.rs"]
mod daemon;
mod damage;
mod dead_letters;
mod full_disk;
mod kills;
#[path = "../served_node/mod.rs"]
mod served_node;
mod shards;
#[path = "../small_disk/mod.rs"]
mod small_disk;
