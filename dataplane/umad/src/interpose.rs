//! Functions of the C library that this library stands in front of.
//!
//! | module | functions | why |
//! |---|---|---|
//! | [`files`] | open, fopen, opendir, stat, access and their variants | programs that read the device tree themselves |
//! | [`wait`] | poll, select, epoll_ctl and variants | programs that poll a portid without asking `umad_get_fd` |
//!
//! Every process under `madctl run` has these, shells and `cat` included, so the rule is: a call that does not concern us
//! costs a few instructions and then is the C library's own call with the caller's arguments. Nothing runs before the first
//! call. No frame here has a destructor while the real function runs, because that may be a cancellation point.
//!
//! Not replaced: `glob`, `nftw`, `fts_open`, and whatever goes around the C library (static programs, Go).

mod files;
mod real;
mod wait;
