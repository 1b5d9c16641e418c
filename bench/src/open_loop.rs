//! A load that comes whether or not the last answer has: latency from when a request was due, not from when it left.
